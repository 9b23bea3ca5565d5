"""Traces: from the enqueue through run and wait to the answer, on both stores, in whichever process each happens."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as spans
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from hipq import DuplicateKey, Failed, Hipq, Invalid, Job, Progress, Queue, Retry, Wait, fixed
from hipq.executors.execution import Execution
from hipq.job.meta import traceparent_in
from hipq.job.model import HISTORY_LIMIT
from hipq.observe.traces import PROMISED, trace, traceparent_of
from hipq.testing.clock import HandClock
from tests import processes
from tests.databases import clean
from tests.docs.test_readme import blocks, run

SECRET = "4111-1111-1111-1111"
STORED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def url(store_kind: str, tmp_path: Path) -> Iterator[str]:
    with clean(store_kind, tmp_path / "traces.db") as found:
        yield found


class Seen:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("mine")

    @property
    def names(self) -> list[str]:
        return [label(span) for span in self.exporter.get_finished_spans()]

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if label(span) == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.all(name)
        return found

    @property
    def traces(self) -> set[int]:
        return {trace_of(span) for span in self.exporter.get_finished_spans()}


def label(span: ReadableSpan) -> str:
    """A span of hipq by what it is and the job's type: its name has the queue. Others by their name."""
    verb, job_type = (attributes(span).get(name) for name in ("messaging.operation.name", "hipq.type"))
    assert not verb or span.name.startswith(f"{verb} ")
    return f"hipq {verb} {job_type}" if verb else span.name


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def make_app(url: str, seen: Seen) -> Iterator[Callable[..., Hipq]]:
    apps: list[Hipq] = []

    def make(traced: bool = True, **options: Any) -> Hipq:
        apps.append(Hipq("shop", url, **options))
        apps[-1].migrate()
        if traced:
            trace(apps[-1], seen.provider)
        return apps[-1]

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def app(make_app: Callable[..., Hipq]) -> Hipq:
    return make_app()


@pytest.fixture
def queue(app: Hipq) -> Queue:
    return app.queue("orders")


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def _context(span: ReadableSpan) -> Any:
    assert span.context is not None
    return span.context


def id_of(span: ReadableSpan) -> int:
    found: int = _context(span).span_id
    return found


def trace_of(span: ReadableSpan) -> int:
    found: int = _context(span).trace_id
    return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def operation(name: str, kind: str) -> dict[str, str]:
    return {"messaging.operation.name": name, "messaging.operation.type": kind}


def meta(app: Hipq, job_id: int) -> str:
    row = app.store.get(job_id)
    assert row is not None
    return row.meta


def in_another_process(code: str, *words: str, **environment: str) -> Any:
    """What a program prints, as JSON."""
    command = [sys.executable, "-c", code, *words]
    done = processes.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ANSWERING = """
import json, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from hipq import Hipq
from hipq.observe.traces import trace

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
app = Hipq("shop", sys.argv[1])
trace(app, provider)
app.queue("orders")
with provider.get_tracer("web").start_as_current_span("POST /callback") as web:
    outcome = app.answer("orders", "charge", "order-17", sys.argv[2])
app.close()
def label(span):
    verb, type = (span.attributes.get(name) for name in ("messaging.operation.name", "hipq.type"))
    return f"hipq {verb} {type}" if verb else span.name
print(json.dumps({"outcome": outcome, "web": web.get_span_context().span_id, "spans": [
    {"name": label(span), "trace": span.context.trace_id, "parent": span.parent and span.parent.span_id,
     "start": span.start_time, "end": span.end_time, "attributes": dict(span.attributes),
     "links": [link.context.span_id for link in span.links]}
    for span in exporter.get_finished_spans()
]}))
"""


def test_one_trace_from_the_enqueue_to_the_answer_that_another_process_brings(app: Hipq, url: str, seen: Seen) -> None:
    charge = app.queue("orders").job("charge")(lambda _: Wait())
    charge.answered(lambda _, answer: answer.data)
    with seen.tracer.start_as_current_span("checkout") as checkout:
        job_id = charge.enqueue({"card": SECRET}, key="order-17")
    app.run(until_empty=True)
    said = in_another_process(ANSWERING, url, SECRET)
    app.run(until_empty=True)

    assert app.job(job_id).result == SECRET
    assert seen.names == ["hipq enqueue charge", "checkout", "hipq run charge", "hipq answer charge"]
    assert seen.traces == {checkout.get_span_context().trace_id}
    enqueue, ran, answered = (seen.one(f"hipq {verb} charge") for verb in ("enqueue", "run", "answer"))
    assert parent_of(enqueue) == checkout.get_span_context().span_id
    assert parent_of(ran) == parent_of(answered) == id_of(enqueue)
    assert [span.kind.name for span in (enqueue, ran, answered)] == ["PRODUCER", "CONSUMER", "CONSUMER"]

    web, wait = said["spans"][1], said["spans"][0]
    assert (said["outcome"], web["name"], wait["name"]) == ("matched", "POST /callback", "hipq wait charge")
    assert (wait["trace"], wait["parent"]) == (checkout.get_span_context().trace_id, id_of(enqueue))
    assert web["trace"] != wait["trace"]
    assert wait["links"] == [said["web"]]
    events = {entry["event"]: entry["at"].timestamp() for entry in app.job(job_id).history}
    assert wait["start"] == pytest.approx(events["waits"] * 1e9, abs=2000)
    assert wait["end"] == pytest.approx(events["answered"] * 1e9, abs=2000)
    assert wait["end"] > wait["start"]

    every = {"messaging.system": "hipq", "messaging.destination.name": "orders", "hipq.type": "charge",
             "messaging.message.id": str(job_id), "messaging.message.conversation_id": "order-17"}  # fmt: skip
    assert attributes(enqueue) == every | operation("enqueue", "send") | {"hipq.outcome": "added"}
    assert attributes(ran) == every | operation("run", "process") | {"hipq.attempt": 1, "hipq.outcome": "waits"}
    assert wait["attributes"] == every | operation("wait", "receive") | {"hipq.attempt": 1, "hipq.outcome": "matched"}
    assert attributes(answered) == every | operation("answer", "process") | {"hipq.attempt": 1, "hipq.outcome": "ok"}
    assert SECRET not in json.dumps(said["spans"])
    assert SECRET not in "".join(span.to_json() for span in seen.exporter.get_finished_spans())


def test_a_job_without_answer_handler_is_answered_where_its_answer_comes(app: Hipq, url: str, seen: Seen) -> None:
    charge = app.queue("orders").job("charge")(lambda _: Wait())
    charge.enqueue(key="order-17")
    app.run(until_empty=True)
    said = in_another_process(ANSWERING, url, "yes")
    assert [span["name"] for span in said["spans"]][:2] == ["hipq wait charge", "hipq answer charge"]
    assert {span["trace"] for span in said["spans"][:2]} == seen.traces
    assert said["spans"][1]["attributes"]["hipq.outcome"] == "ok"
    assert said["spans"][1]["start"] == said["spans"][0]["end"]


def test_what_a_handler_does_is_inside_its_span(app: Hipq, queue: Queue, seen: Seen) -> None:
    said: dict[str, str] = {}

    @queue.job
    def work(job: Job[Any]) -> None:
        said["outside"] = job.traceparent
        with seen.tracer.start_as_current_span("inner"):
            said["inside"] = job.traceparent
            said["the same"] = traceparent_of(job)

    job_id = work.enqueue()
    app.run(until_empty=True)
    ran, inner = seen.one("hipq run work"), seen.one("inner")
    assert parent_of(inner) == id_of(ran)
    assert said["outside"].split("-")[2] == f"{id_of(ran):016x}"
    assert said["inside"].split("-")[2] == said["the same"].split("-")[2] == f"{id_of(inner):016x}"
    assert app.job(job_id).traceparent.split("-")[2] == f"{id_of(seen.one('hipq enqueue work')):016x}"
    assert len(seen.traces) == 1
    assert not spans.get_current_span().get_span_context().is_valid


def test_the_thread_that_ran_it_is_in_no_span_afterwards(app: Hipq, queue: Queue, seen: Seen) -> None:
    work = queue.job("work")(lambda _: None)
    row = app.store.get(work.enqueue())
    assert row is not None
    assert app.traces is not None
    with app.traces.around(Execution(row, work.spec, 0)):
        assert app.traces.current() != ""
    assert app.traces.current() == ""
    assert "hipq run work" in seen.names


def test_async_handlers_that_overlap_are_each_in_their_own_span(app: Hipq, queue: Queue, seen: Seen) -> None:
    both = asyncio.Event()
    began = 0

    @queue.job
    async def work(job: Job[Any]) -> str:
        nonlocal began
        began += 1
        if began == 2:
            both.set()
        await both.wait()
        with seen.tracer.start_as_current_span(f"inner {job.key}"):
            await asyncio.sleep(0)
        return job.traceparent

    ids = [work.enqueue(key=key) for key in ("a", "b")]
    app.run(until_empty=True)
    runs = {int(attributes(span)["messaging.message.id"]): span for span in seen.all("hipq run work")}
    assert len(seen.traces) == 2
    for key, job_id in zip(("a", "b"), ids, strict=True):
        assert parent_of(seen.one(f"inner {key}")) == id_of(runs[job_id])
        assert app.job(job_id).result.split("-")[2] == f"{id_of(runs[job_id]):016x}"
        assert attributes(runs[job_id])["hipq.outcome"] == "ok"


def test_the_retry_handler_of_an_async_job_is_inside_its_span_too(app: Hipq, queue: Queue, seen: Seen) -> None:
    @queue.job
    async def work(_job: Job[Any]) -> None:
        raise ValueError("no")

    @work.retry
    def again(_job: Job[Any], _fault: Any) -> None:
        with seen.tracer.start_as_current_span("deciding"):
            pass

    work.enqueue()
    app.run(until_empty=True)
    assert parent_of(seen.one("deciding")) == id_of(seen.one("hipq run work"))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_in_a_process_of_its_own_has_the_span_of_the_engine(
    app: Hipq, queue: Queue, seen: Seen, is_async: bool
) -> None:
    def here(job: Job[Any]) -> dict[str, Any]:
        with seen.tracer.start_as_current_span("inner") as inner:
            parent = inner.parent  # type: ignore[attr-defined]
        job.enqueue("child")
        under = f"{parent.trace_id:032x}-{parent.span_id:016x}"
        return {"said": job.traceparent, "under": under, "pid": os.getpid()}

    async def there(job: Job[Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return here(job)

    work = queue.job("work", process=True)(there if is_async else here)
    queue.job("child")(lambda _: None)
    job_id = work.enqueue()
    app.run(until_empty=True)
    ran, result = seen.one("hipq run work"), app.job(job_id).result
    assert result["pid"] != os.getpid()
    assert result["under"] == f"{trace_of(ran):032x}-{id_of(ran):016x}"
    assert result["said"][3:-3] == result["under"]
    assert parent_of(seen.one("hipq enqueue child")) == id_of(ran)
    assert parent_of(seen.one("hipq run child")) == id_of(seen.one("hipq enqueue child"))
    assert len(seen.traces) == 1


def test_a_child_that_dies_over_its_job_leaves_a_span(app: Hipq, queue: Queue, seen: Seen) -> None:
    again = fixed(0, attempts=2)
    queue.job("work", process=True, retry=again)(lambda _: os._exit(9)).enqueue()
    app.run(until_empty=True)
    found = seen.all("hipq run work")
    assert {attributes(span)["hipq.outcome"] for span in found} == {"crashed"}
    assert {span.status.status_code for span in found} == {spans.StatusCode.ERROR}
    assert len(found) == 2
    assert len(seen.traces) == 1


def test_a_job_added_by_a_handler_goes_on_with_the_trace(app: Hipq, queue: Queue, seen: Seen) -> None:
    mails = app.queue("mails")
    mail = mails.job("mail")(lambda _: None)

    @queue.job
    def work(job: Job[Any]) -> None:
        with seen.tracer.start_as_current_span("inner"):
            job.enqueue(mail, key="to-17")

    work.enqueue()
    app.run(until_empty=True)
    added, ran = seen.one("hipq enqueue mail"), seen.one("hipq run mail")
    assert len(seen.traces) == 1
    assert parent_of(added) == id_of(seen.one("inner"))
    assert parent_of(ran) == id_of(added)
    (job,) = app.jobs("mails")
    assert attributes(added) == {
        "messaging.system": "hipq", "messaging.destination.name": "mails", "hipq.type": "mail",
        "messaging.message.id": str(job.id), "messaging.message.conversation_id": "to-17",
        "messaging.operation.name": "enqueue", "messaging.operation.type": "send",
        "hipq.attempt": 0, "hipq.outcome": "added",
    }  # fmt: skip


def test_what_a_failed_handler_wanted_to_add_has_no_span(app: Hipq, queue: Queue, seen: Seen) -> None:
    queue.job("child")(lambda _: None)

    @queue.job
    def work(job: Job[Any]) -> None:
        job.enqueue("child")
        raise ValueError("no")

    work.enqueue()
    app.run(until_empty=True)
    assert seen.names == ["hipq enqueue work", "hipq run work"]


def test_a_child_with_a_key_that_is_taken_has_no_span_nor_is_it_remembered(app: Hipq, queue: Queue, seen: Seen) -> None:
    child = queue.job("child")(lambda _: None)
    child.enqueue(key="one", delay=3600)
    queue.job("work")(lambda job: job.enqueue("child", key="one")).enqueue()
    app.run(until_empty=True)
    assert len(seen.all("hipq enqueue child")) == 1
    assert app.traces is not None
    assert len(app.traces._promised) <= 1 < PROMISED


def test_jobs_of_a_schedule_begin_a_trace_each(make_app: Callable[..., Hipq], seen: Seen) -> None:
    clock = HandClock()
    app = make_app(clock=clock)

    @app.queue("orders").cron("* * * * *")
    def report(_job: Job[Any]) -> None:
        pass

    with seen.tracer.start_as_current_span("the program"):
        for _ in range(3):
            app.run(until_empty=True)
            clock.advance(seconds=60)
    added, ran = seen.all("hipq enqueue report"), seen.all("hipq run report")
    assert len(added) == len(ran) == len(seen.traces) - 1 == 2
    assert [parent_of(span) for span in ran] == [id_of(span) for span in added]
    assert {span.parent for span in added} == {None}


def test_errors_are_recorded_without_payloads(app: Hipq, queue: Queue, seen: Seen) -> None:
    @queue.job(retry=lambda job, _: Retry(delay=0) if job.attempt == 1 else None)
    def work(_job: Job[Any]) -> None:
        raise ValueError("the bank is closed")

    queue.job("refuse")(lambda _: Failed("never"))
    work.enqueue({"card": SECRET})
    queue.enqueue("refuse", {"card": SECRET})
    app.run(until_empty=True)
    first, second = seen.all("hipq run work")
    assert [attributes(span)["hipq.outcome"] for span in (first, second)] == ["again", "gave up"]
    assert [attributes(span)["hipq.attempt"] for span in (first, second)] == [1, 2]
    for span in (first, second):
        assert span.status.status_code == spans.StatusCode.ERROR
        assert span.status.description == "the bank is closed"
        assert [(event.name, dict(event.attributes or {})) for event in span.events] == [
            ("exception", {"exception.type": "ValueError", "exception.message": "the bank is closed"})
        ]
    refused = seen.one("hipq run refuse")
    assert (attributes(refused)["hipq.outcome"], refused.status.description) == ("failed", "never")
    assert SECRET not in "".join(span.to_json() for span in seen.exporter.get_finished_spans())


def test_an_answer_that_says_the_work_failed_is_not_quoted(app: Hipq, queue: Queue, seen: Seen) -> None:
    charge = queue.job("charge")(lambda _: Wait())
    charge.enqueue(key="a")
    app.run(until_empty=True)
    charge.answer("a", {"card": SECRET}, error=True)
    app.run(until_empty=True)
    answered = seen.one("hipq answer charge")
    assert answered.status.status_code == spans.StatusCode.ERROR
    assert attributes(answered)["hipq.outcome"] == "gave up"
    assert attributes(seen.one("hipq wait charge"))["hipq.outcome"] == "matched"
    assert SECRET not in "".join(span.to_json() for span in seen.exporter.get_finished_spans())


def test_a_job_that_asks_for_another_run_has_not_failed(app: Hipq, queue: Queue, seen: Seen) -> None:
    queue.job("work")(lambda job: Retry(delay=0) if job.attempt == 1 else None).enqueue()
    queue.job("other", retry=lambda *_: Retry(3600))(lambda _: Retry()).enqueue()
    app.run(until_empty=True)
    assert [attributes(span)["hipq.outcome"] for span in seen.all("hipq run work")] == ["again", "ok"]
    assert attributes(seen.one("hipq run other"))["hipq.outcome"] == "again"
    assert {span.status.status_code for span in seen.exporter.get_finished_spans()} == {spans.StatusCode.UNSET}


def test_each_wait_between_answers_has_a_span(make_app: Callable[..., Hipq], seen: Seen) -> None:
    clock = HandClock()
    app = make_app(clock=clock)
    charge = app.queue("orders").job("charge")(lambda _: Wait())
    charge.answered(lambda _, answer: None if answer.data == "done" else Progress())
    charge.enqueue(key="a")
    app.run(until_empty=True)
    for seconds, data in ((5, "half"), (7, "done")):
        clock.advance(seconds=seconds)
        charge.answer("a", data)
        app.run(until_empty=True)
    waits = seen.all("hipq wait charge")
    lasted = [(span.end_time or 0) - (span.start_time or 0) for span in waits]
    assert lasted == [5_000_000_000, 7_000_000_000]
    assert [attributes(span)["hipq.outcome"] for span in seen.all("hipq answer charge")] == ["progress", "ok"]
    assert len(seen.traces) == 1


def test_a_wait_that_ends_with_a_time_out_and_what_its_retry_handler_does(
    make_app: Callable[..., Hipq], seen: Seen
) -> None:
    clock = HandClock()
    app = make_app(clock=clock)
    charge = app.queue("orders").job("charge", timeout=60)(lambda _: Wait())

    @charge.retry
    def judge(_job: Job[Any], _fault: Any) -> None:
        with seen.tracer.start_as_current_span("deciding"):
            pass

    @charge.cancelled
    def call_off(_job: Job[Any]) -> None:
        with seen.tracer.start_as_current_span("cancelling"):
            pass

    charge.enqueue(key="a")
    app.run(until_empty=True)
    clock.advance(seconds=61)
    app.run(until_empty=True)
    wait = seen.one("hipq wait charge")
    assert (attributes(wait)["hipq.outcome"], wait.status.status_code) == ("timed out", spans.StatusCode.ERROR)
    assert (wait.end_time or 0) - (wait.start_time or 0) == 61_000_000_000
    judged = seen.one("hipq decide charge")
    assert (attributes(judged)["hipq.outcome"], judged.status.status_code) == ("gave up", spans.StatusCode.UNSET)
    assert parent_of(seen.one("deciding")) == id_of(judged)
    assert parent_of(seen.one("cancelling")) == id_of(seen.one("hipq cancel charge"))
    assert len(seen.traces) == 1


def test_an_early_answer_is_in_the_trace_of_its_job(app: Hipq, queue: Queue, seen: Seen) -> None:
    charge = queue.job("charge")(lambda _: Wait())
    charge.answered(lambda _, answer: answer.data)
    assert charge.answer("a", 1) == "buffered"
    charge.enqueue(key="a")
    app.run(until_empty=True)
    assert seen.names == ["hipq enqueue charge", "hipq run charge", "hipq wait charge", "hipq answer charge"]
    assert len(seen.traces) == 1


def test_many_jobs_share_the_span_of_their_enqueue(app: Hipq, queue: Queue, seen: Seen) -> None:
    """By each way into the database: one row, some, so many that they are copied, and beside keys that are taken."""
    work = queue.job("work")(lambda _: None)
    for count in (2, 300):
        ids = work.enqueue_many(range(count))
        text = f"{id_of(seen.exporter.get_finished_spans()[-1]):016x}"
        assert {app.job(job_id).traceparent.split("-")[2] for job_id in ids} == {text}
    work.enqueue(key="k250")
    before = meta(app, work.enqueue(key="k250", on_duplicate="return"))
    some = work.enqueue_many(range(300), keys=[f"k{n}" for n in range(300)], on_duplicate="return")
    assert len({app.job(job_id).traceparent for job_id in some}) == 2
    assert meta(app, some[250]) == before
    assert [attributes(span).get("messaging.batch.message_count") for span in seen.all("hipq enqueue work")] == [
        2, 300, None, None, 300,
    ]  # fmt: skip


def test_async_callers_each_have_a_span_though_they_share_a_transaction(app: Hipq, queue: Queue, seen: Seen) -> None:
    work = queue.job("work")(lambda _: None)

    async def caller(n: int) -> tuple[int, int]:
        with seen.tracer.start_as_current_span(f"caller {n}"):
            return await work.aenqueue(n, key=f"k{n}"), (await work.aenqueue_many([n, n]))[1]

    async def everybody() -> list[tuple[int, int]]:
        return await asyncio.gather(*(caller(n) for n in range(5)))

    for n, ids in enumerate(asyncio.run(everybody())):
        expected = f"{trace_of(seen.one(f'caller {n}')):032x}"
        for job_id in ids:
            assert app.job(job_id).traceparent.split("-")[1] == expected
    assert {parent_of(span) for span in seen.all("hipq enqueue work")} == {
        id_of(seen.one(f"caller {n}")) for n in range(5)
    }


def test_an_enqueue_that_is_refused_is_an_error_and_says_nothing_of_the_payload(
    app: Hipq, queue: Queue, seen: Seen
) -> None:
    work = queue.job("work")(lambda _: None)
    work.enqueue(key="a")
    with pytest.raises(DuplicateKey):
        work.enqueue(key="a")
    with pytest.raises(Invalid):
        work.enqueue({"card": {SECRET: object()}})
    with pytest.raises(TypeError):
        work.enqueue(1, trace=STORED)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        asyncio.run(work.aenqueue(1, trace=STORED))  # type: ignore[call-arg]
    failed = [span.status.description for span in seen.all("hipq enqueue work") if span.status.description]
    assert failed == ["DuplicateKey", "Invalid", "TypeError"]  # `enqueue` was not even called with such an option
    assert not spans.get_current_span().get_span_context().is_valid
    assert SECRET not in "".join(span.to_json() for span in seen.exporter.get_finished_spans())
    assert app.jobs.count("orders") == 1


def test_without_tracing_nothing_is_stored_and_nothing_exported(make_app: Callable[..., Hipq], seen: Seen) -> None:
    app = make_app(traced=False)
    work = app.queue("orders").job("work")(lambda job: job.traceparent)
    with seen.tracer.start_as_current_span("mine"):
        ids = [work.enqueue(), *work.enqueue_many([1, 2]), *work.enqueue_many([0] * 300)]
    assert {meta(app, job_id) for job_id in ids} == {"{}"}
    app.run(until_empty=True)
    assert {app.job(job_id).result for job_id in ids} == {""}
    assert seen.names == ["mine"]


def test_a_worker_that_traces_runs_jobs_that_nobody_traced(make_app: Callable[..., Hipq], seen: Seen) -> None:
    untraced = make_app(traced=False).queue("orders").job("charge")(lambda _: None)
    untraced.enqueue(key="a")
    app = make_app()
    charge = app.queue("orders").job("charge")(lambda _: Wait())
    app.run(until_empty=True)
    charge.answer("a", 1)
    assert seen.names == ["hipq run charge"]  # a wait would have no trace to belong to
    assert seen.one("hipq run charge").parent is None


def test_a_trace_that_is_not_sampled_stays_so(make_app: Callable[..., Hipq], seen: Seen) -> None:
    silent = TracerProvider(sampler=ALWAYS_OFF)
    adding = make_app(traced=False)
    trace(adding, silent)
    job_id = adding.queue("orders").job("work")(lambda _: None).enqueue()
    assert adding.job(job_id).traceparent.endswith(("-00", "-02"))
    app = make_app()
    app.queue("orders").job("work")(lambda _: None)
    app.run(until_empty=True)
    assert app.job(job_id).code == "ok"
    assert seen.names == []


def test_the_trace_outlives_a_long_history(app: Hipq, queue: Queue, seen: Seen) -> None:
    times = HISTORY_LIMIT + 10
    job_id = queue.job("work")(lambda job: Retry(delay=0) if job.attempt < times else None).enqueue()
    stored = app.job(job_id).traceparent
    app.run(until_empty=True)
    assert app.job(job_id).attempt == times
    assert len(app.job(job_id).history) < times
    assert app.job(job_id).traceparent == stored != ""
    assert (len(seen.all("hipq run work")), len(seen.traces)) == (times, 1)


def test_a_job_that_is_run_again_is_in_the_trace_of_the_first(app: Hipq, queue: Queue, seen: Seen) -> None:
    first = queue.job("work")(lambda _: None).enqueue()
    app.run(until_empty=True)
    second = app.jobs.requeue(first)
    app.run(until_empty=True)
    assert app.job(second).traceparent == app.job(first).traceparent != ""
    assert (len(seen.all("hipq run work")), len(seen.traces)) == (2, 1)


BROKEN = [
    "{}", "[]", "not JSON", "", "1", '{"trace":5}', '{"trace":""}', '{"trace":"garbage"}',
    f'{{"trace":"{STORED.upper()}"}}', f'{{"trace":"{STORED}-more"}}', f'{{"trace":"ff{STORED[2:]}"}}',
    f'{{"trace":"00-{"0" * 32}-b7ad6b7169203331-01"}}', f'{{"trace":"00-{"1" * 32}-{"0" * 16}-01"}}',
    f'{{"trace":"{STORED}\\n"}}', '{"trace":"80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1"}',
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_a_traceparent_that_is_none_is_ignored(broken: str) -> None:
    assert traceparent_in(broken) == ""
    assert traceparent_in(f'{{"then":"next","trace":"{STORED}"}}') == STORED


def test_a_job_whose_stored_trace_is_broken_runs_in_a_trace_of_its_own(app: Hipq, queue: Queue, seen: Seen) -> None:
    work = queue.job("charge")(lambda job: Wait() if job.traceparent else Failed("not traced"))
    new = work._new(None, "a", {}, "00-garbage")
    ((job_id, _),) = app.store.enqueue([new])
    assert meta(app, job_id) == '{"trace":"00-garbage"}'
    assert app.job(job_id).traceparent == ""
    app.run(until_empty=True)
    assert work.answer("a", 1) == "matched"
    assert seen.names == ["hipq run charge"]
    assert seen.one("hipq run charge").parent is None


class Bad(SpanProcessor):
    def on_start(self, span: Span, parent_context: Any = None) -> None:  # noqa: ARG002
        raise RuntimeError("a bug of who looks")

    def on_end(self, span: ReadableSpan) -> None:  # noqa: ARG002
        raise RuntimeError("a bug of who looks")


@pytest.mark.parametrize("method", ["on_start", "on_end"])
def test_a_bug_in_what_spans_are_given_to_stops_nothing(app: Hipq, queue: Queue, seen: Seen, method: str) -> None:
    bad = Bad()
    setattr(bad, "on_end" if method == "on_start" else "on_start", lambda *_, **__: None)
    seen.provider.add_span_processor(bad)
    work = queue.job("work")(lambda job: job.enqueue("child"))

    @queue.job
    async def child(_job: Job[Any]) -> None: ...

    charge = queue.job("charge")(lambda _: Wait())
    work.enqueue()
    charge.enqueue(key="a")
    app.run(until_empty=True)
    charge.answer("a", 1)
    assert [job.code for job in app.jobs("orders")] == ["ok"] * 3


def test_to_trace_twice_is_to_trace_once(app: Hipq, queue: Queue, seen: Seen) -> None:
    trace(app, seen.provider)
    work = queue.job("work")(lambda _: Wait())
    work.enqueue(key="a")
    app.run(until_empty=True)
    work.answer("a", 1)
    assert seen.names == [f"hipq {verb} work" for verb in ("enqueue", "run", "wait", "answer")]


MODULES = """
import json, sys
from hipq import Hipq
app = Hipq("shop", sys.argv[1])
work = app.queue("orders").job("work")(lambda job: job.traceparent)
id = work.enqueue()
app.run(until_empty=True)
loaded = any(name.startswith("opentelemetry") for name in sys.modules)
print(json.dumps([app.traces is not None, loaded, app.job(id).history[0]], default=str))
"""


@pytest.mark.parametrize("setting", ["", "0", "1"])
def test_opentelemetry_is_not_loaded_unless_it_is_wanted(tmp_path: Path, setting: str) -> None:
    found = in_another_process(MODULES, f"sqlite:///{tmp_path}/shop.db", HIPQ_TRACES=setting)
    assert found[:2] == ([True, True] if setting == "1" else [False, False])
    assert found[2]["event"] == "claimed"  # with no SDK there is nothing to store


def test_a_setting_that_is_neither_on_nor_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_TRACES", "yes")
    with pytest.raises(Invalid, match="HIPQ_TRACES is 1 or 0, not 'yes'"):
        Hipq("shop", "sqlite://")


def test_without_opentelemetry_tracing_says_what_is_missing() -> None:
    code = """
import json, sys
sys.modules["opentelemetry"] = None
import hipq
try:
    import hipq.observe.traces
except ImportError as error:
    print(json.dumps(str(error)))
"""
    assert in_another_process(code) == "traces need OpenTelemetry: pip install 'hipq[otel]'"


def test_the_guide(tmp_path: Path) -> None:
    programs = [block for language, block in blocks("docs/traces.md") if language == "python"]
    assert len(programs) == 2
    for program in programs:
        run([sys.executable, "-c", program], tmp_path)


def test_spans_are_named_by_the_conventions_for_messaging(app: Hipq, seen: Seen) -> None:
    orders = app.queue("orders")

    @orders.job
    def charge(job: Job[Any]) -> Wait:
        job.enqueue("child")
        return Wait()

    child = orders.job("child")(lambda _: raise_no())
    charge.enqueue(key="order-17")
    app.run(until_empty=True)
    charge.answer("order-17", 1)
    names = [span.name for span in seen.exporter.get_finished_spans()]
    assert sorted(names) == sorted(["enqueue orders", "run orders"] * 2 + ["wait orders", "answer orders"])
    failed = seen.one(f"hipq run {child.name}")
    assert attributes(failed)["error.type"] == "ValueError"


def raise_no() -> None:
    raise ValueError("no")
