"""Middleware: in what order, around what, in which threads and processes, and what becomes of errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Generator, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hipq import Answer, Failed, Fault, Hipq, Invalid, Job, Middleware, Ok, Queue, Retry, Wait, fixed
from hipq.job.middleware import Enqueue
from hipq.middleware import JobScope
from tests.engine.working import one_store

Run = Callable[[], None]
Steps = Generator[None, Any, None]

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
every_kind = pytest.mark.parametrize("kind", ["thread", "task", "process", "async process"])


def declare(queue: Queue, kind: str, work: Callable[[Job[Any]], Any], **options: Any) -> None:
    """A handler of this kind that does this work."""
    if kind in ("thread", "process"):
        queue.job("work", process=kind == "process", **options)(lambda job: work(job))
        return

    @queue.job("work", process=kind == "async process", **options)
    async def task(job: Job[Any]) -> Any:
        await asyncio.sleep(0)
        return work(job)


class Noting(Middleware):
    """Writes down what it sees, in whatever process."""

    def __init__(self, file: Path, name: str = "") -> None:
        self._file = file
        self._name = name

    def note(self, *words: object) -> None:
        with self._file.open("a") as file:
            print(self._name, *words, file=file)

    def enqueue(self, call: Enqueue) -> None:
        self.note("enqueue", call.type, call.key)

    def around(self, what: str) -> Steps:
        self.note("before", what)
        try:
            outcome = yield
        except BaseException as error:
            self.note("raised", what, repr(error))
            raise
        self.note("after", what, repr(outcome))

    def run(self, job: Job[Any]) -> Steps:
        yield from self.around(f"run {job.phase}")

    def answer(self, job: Job[Any], answer: Answer) -> Steps:
        yield from self.around(f"answer {job.key} {answer.data}")

    def retry(self, job: Job[Any], fault: Fault) -> Steps:  # noqa: ARG002
        yield from self.around(f"retry {fault.message}")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def lines(notes: Path) -> list[str]:
    found = [line.strip() for line in notes.read_text().splitlines()]
    notes.write_text("")
    return found


# -- around code ------------------------------------------------------------------------------------------------------
@every_kind
def test_the_first_one_used_is_the_outermost(app: Hipq, queue: Queue, run: Run, notes: Path, kind: str) -> None:
    outer, inner = Noting(notes, "outer"), Noting(notes, "inner")
    app.use(outer)
    app.use(inner)

    def work(_: Job[Any]) -> int:
        inner.note("handler")
        return 7

    declare(queue, kind, work)
    job_id = queue.enqueue("work", key="k")
    run()
    assert lines(notes) == [
        "outer enqueue work k", "inner enqueue work k", "outer before run executing", "inner before run executing",
        "inner handler", "inner after run executing 7", "outer after run executing 7",
    ]  # fmt: skip
    assert app.job(job_id).result == 7


@every_kind
def test_what_it_sets_in_the_context_is_there_for_the_handler_and_the_retry_handler(
    app: Hipq, queue: Queue, notes: Path, kind: str
) -> None:
    class Tenants(Middleware):
        def run(self, job: Job[Any]) -> Iterator[None]:
            token = tenant.set(job.data)
            try:
                yield
            finally:
                tenant.reset(token)

        def retry(self, job: Job[Any], fault: Fault) -> Iterator[None]:  # noqa: ARG002
            yield from self.run(job)

    note = Noting(notes).note
    app.use(Tenants())

    def work(_: Job[Any]) -> None:
        note("handler", tenant.get())
        raise ValueError

    def again(_job: Job[Any], _fault: Fault) -> None:
        note("retry", tenant.get())

    declare(queue, kind, work, retry=again)
    queue.enqueue_many("work", ["acme", "umbrella"])
    app.run(until_empty=True, concurrency=1)
    assert sorted(lines(notes)) == ["handler acme", "handler umbrella", "retry acme", "retry umbrella"]
    assert tenant.get() == "nobody"


@every_kind
def test_an_error_of_the_handler_is_seen_and_goes_on_though_it_was_caught(
    app: Hipq, queue: Queue, run: Run, notes: Path, kind: str
) -> None:
    class Calm(Middleware):
        def run(self, job: Job[Any]) -> Iterator[None]:  # noqa: ARG002
            try:
                yield
            except ValueError:
                Noting(notes).note("caught")

    def work(_: Job[Any]) -> None:
        raise ValueError("no such page")

    app.use(Noting(notes))
    app.use(Calm())
    declare(queue, kind, work, retry=lambda _job, _fault: Retry(60))
    job_id = queue.enqueue("work", key="k")
    run()
    assert lines(notes) == [
        "enqueue work k", "before run executing", "caught", "raised run executing ValueError('no such page')",
        "before retry no such page", f"after retry no such page {Retry(60)!r}",
    ]  # fmt: skip
    assert (app.job(job_id).state, app.job(job_id).fault.message) == ("retry", "no such page")  # type: ignore[union-attr]


@every_kind
@pytest.mark.parametrize("raised", [False, True])
def test_failed_and_retry_are_outcomes_however_the_handler_says_them(
    app: Hipq, queue: Queue, notes: Path, kind: str, raised: bool
) -> None:
    def work(job: Job[Any]) -> Any:
        found = Failed("declined") if job.data == "failed" else Retry(60)
        if raised:
            raise found
        return found

    app.use(Noting(notes))
    declare(queue, kind, work)
    failed, again = queue.enqueue("work", "failed"), queue.enqueue("work", "retry")
    app.run(until_empty=True, concurrency=1)
    found = [line for line in lines(notes) if line.startswith(("after", "raised"))]
    assert found == [f"after run executing {one!r}" for one in (Failed("declined"), Retry(60))]
    assert (app.job(failed).code, app.job(again).state) == ("failed", "retry")


class Raising(Middleware):
    """Raises on one side of the handler."""

    def __init__(self, error: BaseException, *, before: bool = False) -> None:
        self._error = error
        self._before = before

    def run(self, job: Job[Any]) -> Iterator[None]:  # noqa: ARG002
        if self._before:
            raise self._error
        yield
        raise self._error


@every_kind
@pytest.mark.parametrize("before", [True, False])
def test_what_it_raises_is_the_error_of_the_handler(
    app: Hipq, queue: Queue, run: Run, notes: Path, kind: str, before: bool
) -> None:
    app.use(Noting(notes, "outer"))
    app.use(Raising(LookupError("no tenant"), before=before))
    app.use(Noting(notes, "inner"))
    declare(queue, kind, lambda _: Noting(notes, "inner").note("handler"), retry=fixed(60))
    job_id = queue.enqueue("work", key="k")
    run()
    found = [line for line in lines(notes) if " run exec" in line or "handler" in line]
    inside = [] if before else ["inner before run executing", "inner handler", "inner after run executing None"]
    assert found == ["outer before run executing", *inside, "outer raised run executing LookupError('no tenant')"]
    assert (app.job(job_id).state, str(app.job(job_id).fault)) == ("retry", "LookupError: no tenant")


@pytest.mark.parametrize("before", [True, False])
def test_it_can_decide_what_the_job_comes_to(app: Hipq, queue: Queue, run: Run, notes: Path, before: bool) -> None:
    app.use(Noting(notes))
    app.use(Raising(Failed("not today"), before=before))
    declare(queue, "thread", lambda _: Ok("done"))
    job_id = queue.enqueue("work")
    run()
    assert lines(notes)[-1] == "after run executing Failed('not today')"
    assert (app.job(job_id).code, str(app.job(job_id).fault)) == ("failed", "not today")


def test_around_answers_and_cancel_handlers(app: Hipq, queue: Queue, notes: Path) -> None:
    @queue.job
    def ask(_: Job[Any]) -> Wait:
        return Wait()

    @ask.answered
    async def told(_: Job[Any], answer: Answer) -> Any:
        return answer.data

    @ask.cancelled
    def off(_: Job[Any]) -> None: ...

    app.use(Noting(notes))
    first, second = ask.enqueue(key="a"), ask.enqueue(key="b")
    app.run(until_empty=True, concurrency=1)
    ask.answer("a", 5)
    app.cancel(second)
    lines(notes)
    app.run(until_empty=True, concurrency=1)
    assert sorted(lines(notes)) == [
        "after answer a 5 5", "after run cancelling None", "before answer a 5", "before run cancelling",
    ]  # fmt: skip
    assert (app.job(first).result, app.job(second).state) == (5, "final")


def test_a_retry_handler_that_raises_is_as_it_was_without(app: Hipq, queue: Queue, run: Run, notes: Path) -> None:
    """`Retry` is what it returns: to raise it is an error, with middleware as without."""

    def work(_: Job[Any]) -> None:
        raise ValueError("no")

    def again(_job: Job[Any], _fault: Fault) -> None:
        raise Retry(5)

    app.use(Noting(notes))
    declare(queue, "thread", work, retry=again)
    job_id = queue.enqueue("work")
    run()
    assert "its retry handler raised" in app.job(job_id).error
    assert lines(notes)[-1].startswith("raised retry no ")


class Never(Middleware):
    def run(self, job: Job[Any]) -> Iterator[None]:
        if job.id < 0:
            yield


class Twice(Middleware):
    def run(self, _job: Job[Any]) -> Iterator[None]:
        yield
        yield


@one_store
@pytest.mark.parametrize(("wrong", "error"), [(Never, "has returned without a yield"), (Twice, "has a second yield")])
def test_a_generator_yields_once(app: Hipq, queue: Queue, run: Run, wrong: type[Middleware], error: str) -> None:
    app.use(wrong())
    queue.job("work")(lambda _: None)
    job_id = queue.enqueue("work")
    run()
    assert error in app.job(job_id).error


@one_store
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_stop_iteration_goes_on_as_such(app: Hipq, queue: Queue, run: Run, tmp_path: Path, kind: str) -> None:
    def work(_: Job[Any]) -> None:
        next(iter([]))

    app.use(Noting(tmp_path / "outer"))
    app.use(Noting(tmp_path / "inner"))
    declare(queue, kind, work, retry=fixed(60, on=StopIteration))
    job_id = queue.enqueue("work")
    run()
    assert app.job(job_id).state == "retry"
    assert "raised run executing StopIteration()" in lines(tmp_path / "outer")


# -- around adding ----------------------------------------------------------------------------------------------------
class Stamping(Middleware):
    """Gives each job the caller's tenant: in its data, its key and its lane."""

    def enqueue(self, call: Enqueue) -> None:
        if call.data == "refused":
            raise Invalid(f"{call.queue}.{call.type} is refused")
        call.data = {"data": call.data, "tenant": tenant.get()}
        call.key = f"{tenant.get()}-{call.key}"
        call.options["lane"] = tenant.get()


@pytest.fixture
def caller() -> Iterator[None]:
    token = tenant.set("acme")
    yield
    tenant.reset(token)


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize("how", ["enqueue", "enqueue_many", "aenqueue", "aenqueue_many", "by name"])
def test_what_is_added_is_what_the_middleware_makes_of_it(app: Hipq, queue: Queue, how: str) -> None:
    work = queue.job("work")(lambda _: None)
    app.use(Stamping())

    async def many(*data: Any) -> list[int]:
        return [*await work.aenqueue_many(data, keys=["k", "l"][: len(data)], priority=7)]

    def add(data: Any) -> int:
        match how:
            case "enqueue":
                return work.enqueue(data, key="k", priority=7)
            case "enqueue_many":
                return work.enqueue_many([data, 2], keys=["k", "l"], priority=7)[0]
            case "aenqueue":
                return asyncio.run(work.aenqueue(data, key="k", priority=7))
            case "aenqueue_many":
                return asyncio.run(many(data, 2))[0]
            case _:
                return queue.enqueue("work", data, key="k", priority=7)

    with pytest.raises(Invalid, match="work is refused"):
        add("refused")
    assert app.jobs("orders") == []
    found = app.job(add(1))
    assert (found.data, found.key, found.lane) == ({"data": 1, "tenant": "acme"}, "acme-k", "acme")
    assert found.priority == 7
    if "many" in how:
        assert app.jobs("orders")[0].key == "acme-l"


def test_what_it_makes_of_a_job_is_checked(app: Hipq, queue: Queue) -> None:
    class Wrong(Middleware):
        def enqueue(self, call: Enqueue) -> None:
            call.options["priority"] = "high"  # type: ignore[typeddict-item]

    app.use(Wrong())
    with pytest.raises(Invalid, match="priority"):
        queue.enqueue("work")
    assert app.jobs("orders") == []


@every_kind
def test_jobs_that_handlers_add_too(app: Hipq, queue: Queue, run: Run, kind: str) -> None:
    class Tenants(Stamping):
        def run(self, job: Job[Any]) -> Iterator[None]:
            token = tenant.set(job.lane)
            yield
            tenant.reset(token)

    declare(queue, kind, lambda job: job.enqueue("more", 1, key="k"))
    app.use(Tenants())
    token = tenant.set("acme")
    queue.enqueue("work")
    tenant.reset(token)
    run()
    (found,) = app.jobs("orders", type="more")
    assert (found.data, found.key, found.lane) == ({"data": 1, "tenant": "acme"}, "acme-k", "acme")


def test_jobs_of_schedules_too_but_not_their_keys(app: Hipq, queue: Queue, run: Run, clock: Any) -> None:
    @queue.cron("0 * * * *", 5)
    def hourly(_: Job[Any]) -> None: ...

    app.use(Stamping())
    run()
    clock.advance(hours=1)
    run()
    (found,) = app.jobs("orders")
    assert (found.data, found.lane) == ({"data": 5, "tenant": "nobody"}, "nobody")
    assert found.key == "cron:hourly"


# -- what can be used -------------------------------------------------------------------------------------------------
@one_store
def test_what_is_no_middleware_is_refused(app: Hipq) -> None:
    class NoYield(Middleware):
        def run(self, job: Job[Any]) -> Any: ...

    class Yields(Middleware):
        def enqueue(self, call: Enqueue) -> Any:  # noqa: ARG002
            yield

    for wrong, error in (
        (Middleware, "takes an instance of a class like hipq.Middleware"),
        (print, "takes an instance of a class like hipq.Middleware"),
        (NoYield(), "NoYield.run must be a generator function"),
        (Yields(), "Yields.enqueue must be a plain function"),
    ):
        with pytest.raises(Invalid, match=error):
            app.use(wrong)  # type: ignore[arg-type]


@one_store
def test_what_nobody_is_around_of_is_called_as_ever(app: Hipq) -> None:
    class Quiet(Middleware):
        def answer(self, job: Job[Any], answer: Answer) -> Iterator[None]:  # noqa: ARG002
            yield

    app.use(Quiet())
    assert (app.middlewares.run, app.middlewares.retry, app.middlewares.see_jobs_added) == ((), (), False)
    assert len(app.middlewares.answer) == 1


# -- contexts ---------------------------------------------------------------------------------------------------------
@one_store
@every_kind
def test_what_a_handler_sets_in_its_context_is_not_there_for_the_next_job(
    app: Hipq, queue: Queue, run: Run, kind: str
) -> None:
    def work(job: Job[Any]) -> str:
        before = tenant.get()
        tenant.set(job.key)
        return before

    declare(queue, kind, work)
    ids = [queue.enqueue("work", key=f"tenant-{number}") for number in range(30)]
    run()
    assert {app.job(job_id).result for job_id in ids} == {"nobody"}


@dataclass
class Traced:
    n: int
    tenant: str = ""


def test_a_middleware_sees_typed_data_whatever_the_caller_gave(app: Hipq, queue: Queue) -> None:
    class Tenants(Middleware):
        def enqueue(self, call: Enqueue) -> None:
            if isinstance(call.data, Traced):
                call.data = replace(call.data, tenant=tenant.get())
            elif call.type == "work" and "n" not in call.data:
                call.data["n"] = 7

    @queue.job
    def work(job: Job[Traced]) -> str:
        return f"{job.data.tenant} {job.data.n}"

    app.use(Tenants())
    before = tenant.set("acme")
    typed, plain, lacking = work.enqueue(Traced(1)), queue.enqueue("work", {"n": 2}), queue.enqueue("work", {})
    tenant.reset(before)
    app.run(until_empty=True)
    assert [app.result(one) for one in (typed, plain, lacking)] == ["acme 1", "acme 2", " 7"]
    with pytest.raises(Invalid, match="does not fit work's Traced"):
        queue.enqueue("work", {"n": "many"})


@every_kind
def test_a_traceback_begins_in_the_handler(app: Hipq, queue: Queue, kind: str) -> None:
    class Scope(JobScope):
        def scope(self, job: Job[Any]) -> Steps:  # noqa: ARG002
            yield

    def work(_: Job[Any]) -> None:
        raise ValueError("wrong")

    app.use(Scope())
    app.use(Scope())
    declare(queue, kind, work)
    job_id = queue.enqueue("work")
    app.run(until_empty=True)
    fault = app.job(job_id).fault
    assert fault
    assert re.findall(r", in (\S+)", fault.traceback) in (["<lambda>", "work"], ["task", "work"])
