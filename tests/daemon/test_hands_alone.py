"""The hands of a daemon with nothing around them: which jobs go together, whose turn it is, what is given back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hipq.daemon.handlers.keys import SecretKeys
from hipq.daemon.handlers.secrets import TenantSecrets
from hipq.daemon.ids import Ids
from hipq.daemon.job_factory import PLAIN, job
from hipq.daemon.job_output import JobOutput
from hipq.daemon.sandbox_executor import SandboxExecutor
from hipq.daemon.tenancy.fair_queue import BATCH
from hipq.engine.lanes import Spare
from hipq.engine.launch import Launcher
from hipq.errors import CannotRun, StoreUnavailable
from hipq.executors.execution import Execution
from hipq.job.model import blank, numbered
from hipq.job.retries import fixed
from hipq.job.run_result import Decided, Errored, GivenBack, Succeeded
from hipq.job.spec import Spec
from hipq.job.states import EXECUTING, RUNNING
from hipq.sandbox import ContextJob, Handler, JobReport
from hipq.sandbox.policy import Policy
from tests.engine.working import until


class Scripted:
    """Contexts that do as a test says, and remember the batches they were given."""

    def __init__(self, act: Callable[[Sequence[ContextJob]], list[JobReport]]) -> None:
        self.act = act
        self.batches: list[list[str]] = []
        self.homes: list[str] = []

    def run(
        self,
        handler: Handler,
        tasks: Sequence[ContextJob],
        started: Callable[[ContextJob], None],
        ended: Callable[[JobReport], None],
        *_: object,
    ) -> list[ContextJob]:
        self.batches.append([task.payload.decode() for task in tasks])
        self.homes.append(handler.home[-1])
        reports = self.act(tasks)
        by_id = {task.id: task for task in tasks}
        for report in reports:
            started(by_id[report.id])
            ended(report)
        return [task for task in tasks if task.id not in {report.id for report in reports}]

    def abandon(self, job_id: str) -> None: ...
    def withdraw(self, job_id: str) -> bool:  # noqa: ARG002 - whatever it is
        return False

    def close(self) -> None: ...


def ok(tasks: Sequence[ContextJob]) -> list[JobReport]:
    return [JobReport(task.id, 200) for task in tasks]


class Unlimited:
    def enter(self, tenant: str, jobs: int, size: int, freed: tuple[int, int]) -> None: ...
    def keep(self, tenant: str, size: int) -> bool:  # noqa: ARG002
        return False


def spec(name: str, _policy: Policy | None = None) -> Spec:
    return Spec(name, retry=fixed(60, attempts=9), run_timeout=60)


class Bench:
    """An executor with nothing around it."""

    def __init__(self, act: Callable[[Sequence[ContextJob]], list[JobReport]] = ok, concurrency: int = 1) -> None:
        self.contexts = Scripted(act)
        contexts: Any = self.contexts
        quotas: Any = Unlimited()
        store: Any = None  # of handlers without secrets nothing is asked
        self.handler: Callable[[str, str], Handler | None] = lambda tenant, name: Handler("1", tenant, name, "php", "x")
        self.now = 1_000
        steady = lambda: self.now  # noqa: E731 - turned by hand: on a busy machine a job may take any time
        launcher = Launcher(lambda: 1_000, steady, lambda _: None)  # type: ignore[arg-type,return-value]
        ids = Ids(None, 1)  # type: ignore[arg-type]
        self.hands = SandboxExecutor(
            contexts, lambda tenant, name: self.handler(tenant, name), launcher, ids, lambda: 1_000, steady,
            lambda: None, lambda: None, concurrency, quotas, JobOutput(), spec, TenantSecrets(store, SecretKeys()),
        )  # fmt: skip
        self._ids = iter(range(1, 1_000_000))

    def running(self, payload: str, tenant: str = "a", name: str = "x", crashes: int = 0) -> Execution:
        new = job(1, tenant, name, payload.encode(), PLAIN, 1_000)
        found = blank(new, numbered(next(self._ids), 1))
        found = msgspec.structs.replace(found, phase=EXECUTING, state=RUNNING, attempt=1, owner=1, crashes=crashes)
        return Execution(found, spec(name), 1)

    def run(self, *some: Execution) -> list[Execution]:
        self.hands.launch(some)
        return self.stopped(len(some))

    def stopped(self, count: int) -> list[Execution]:
        found: list[Execution] = []

        def all_of_them() -> bool:
            found.extend(self.hands.stopped(1000))
            return len(found) >= count

        until(all_of_them)
        return found


def test_a_result_that_has_got_room_is_known_as_unsaved_until_the_engine_forgets_its_job() -> None:
    """Else a count of the store in between had it nowhere, and its tenant could keep more than its quota."""
    bench, known = Bench(), list[object]()

    class Room(Unlimited):
        def keep(self, tenant: str, size: int) -> bool:  # noqa: ARG002
            return True

        def kept(self, tenant: str, size: int) -> None:  # noqa: ARG002
            known.append(bench.hands.unsaved({one.row.id: one}))

    room: Any = Room()
    bench.hands.quotas, one = room, bench.running("x")
    bench.run(one)
    assert known == [{(one.row.id, one.launched)}], "when it begins to count"
    assert bench.hands.unsaved({one.row.id: one})
    assert not bench.hands.unsaved({})
    assert not bench.hands.unsaved({one.row.id: one})


def test_a_batch_is_as_large_as_takes_a_moment_and_begins_with_one() -> None:
    bench = Bench()
    bench.run(*(bench.running(str(n)) for n in range(400)))
    sizes = [len(batch) for batch in bench.contexts.batches]
    assert sizes[0] == 1, "nobody knows how long they take"
    assert max(sizes) == BATCH
    bench.hands._unstarted._pace["a/x"] = 0.04
    bench.contexts.batches.clear()
    bench.contexts.act = lambda _tasks: []
    bench.run(*(bench.running(str(n)) for n in range(10)))
    assert max(map(len, bench.contexts.batches)) == 2
    bench.hands.close()


def test_tenants_take_turns_at_the_hands_however_many_lanes_each_has() -> None:
    bench = Bench()
    gate = threading.Event()
    bench.contexts.act = lambda tasks: ok(tasks) if gate.wait(60) else []
    some = [bench.running(f"a{lane}", "a", f"lane{lane}") for lane in range(50)]
    bench.hands.launch(some)
    until(lambda: bench.contexts.batches)
    bench.hands.launch([bench.running("b", "b")])
    gate.set()
    bench.stopped(51)
    assert ["b"] in bench.contexts.batches[:3]
    bench.hands.close()


def test_left_over_jobs_are_given_back_and_none_that_began_is() -> None:
    bench = Bench()
    bench.hands._unstarted._pace["a/x"] = 1e-6
    bench.contexts.act = lambda tasks: [JobReport(tasks[0].id, 509, crashed=True)]
    found = {one.row.id: one for one in bench.run(*(bench.running(str(n)) for n in range(5)))}
    endings = [found[job_id].run.result for job_id in sorted(found)]
    assert type(endings[0]).__name__ == "Crashed"
    assert all(isinstance(one, GivenBack) and not one.started for one in endings[1:])
    bench.hands.close()


def test_a_job_that_is_not_wanted_any_more_costs_the_others_of_its_batch_nothing() -> None:
    """Its context is ended before it begins, and with it that of the others."""
    bench = Bench()
    some = [bench.running(str(n)) for n in range(3)]
    bench.hands._unstarted._pace["a/x"] = 1e-6

    def ended(_tasks: object) -> list[JobReport]:
        some[0].abandon()
        bench.hands.abandon(some[0])
        return []

    bench.contexts.act = ended
    bench.hands.launch(some)
    found = bench.stopped(2)
    assert {one.row.id for one in found} == {one.row.id for one in some[1:]}
    assert all(isinstance(one.run.result, GivenBack) and not one.run.result.started for one in found)
    bench.hands.close()


def test_if_no_context_can_be_had_it_is_an_error_and_not_tried_at_once() -> None:
    bench = Bench(lambda _tasks: [])
    (found,) = bench.run(bench.running("x"))
    assert isinstance(found.run.result, Decided)
    assert found.run.result.again
    assert found.run.result.again.delay == 60
    bench.hands.close()


def test_what_cannot_run_on_this_machine_is_tried_later_and_not_over_and_over() -> None:
    bench = Bench()

    def refuse(_tasks: Sequence[ContextJob]) -> list[JobReport]:
        raise CannotRun("handlers in php need its interpreter, which is not installed here")

    bench.contexts.act = refuse
    (found,) = bench.run(bench.running("x"))
    assert isinstance(found.run.result, Decided)
    assert (found.run.result.exitcode, found.run.result.again is not None) == (501, True)
    bench.hands.close()


def test_while_the_store_is_away_and_no_handler_is_known_jobs_are_given_back() -> None:
    bench = Bench()

    def away(_tenant: str, _type: str) -> Handler | None:
        raise StoreUnavailable("the database is away")

    bench.handler = away
    (found,) = bench.run(bench.running("x"))
    assert found.run.result == GivenBack("the database is away", started=False)
    bench.hands.close()


def test_a_bug_of_ours_costs_neither_the_hand_nor_the_jobs() -> None:
    bench = Bench()

    def broken(_tasks: Sequence[ContextJob]) -> list[JobReport]:
        raise RuntimeError("a bug")

    bench.contexts.act = broken
    assert isinstance(bench.run(bench.running("x"))[0].run.result, (Decided, Errored))
    bench.contexts.act = ok
    assert isinstance(bench.run(bench.running("y"))[0].run.result, Succeeded)
    bench.hands.close()


def test_one_that_crashed_runs_alone_and_in_a_context_of_its_own() -> None:
    bench = Bench()
    bench.hands._unstarted._pace["a/x"] = 1e-6
    bench.run(*(bench.running(str(n), crashes=2 if n == 2 else 1 if n == 3 else 0) for n in range(6)))
    assert bench.contexts.batches == [["0", "1"], ["2"], ["3", "4", "5"]], "that its daemon died says nothing"
    assert [home == "x" for home in bench.contexts.homes] == [True, False, True]
    bench.hands.close()


def test_what_is_not_started_can_be_taken_back_and_what_is_abandoned_is_not_told() -> None:
    bench = Bench()
    gate = threading.Event()
    bench.contexts.act = lambda tasks: ok(tasks) if gate.wait(60) else []
    some = [bench.running(str(n)) for n in range(4)]
    bench.hands.launch(some)
    until(lambda: bench.contexts.batches)
    some[0].abandon()
    bench.hands.abandon(some[0])
    some[1].abandon()
    bench.hands.abandon(some[1])
    assert bench.hands.unstarted() == some[1:]
    assert bench.hands.unstarted() == []
    gate.set()
    last = bench.running("last")
    assert bench.run(last) == [last]
    bench.hands.close()


def test_no_more_hands_than_allowed_work_at_the_same_time() -> None:
    bench = Bench(concurrency=3)
    gate = threading.Event()
    bench.contexts.act = lambda tasks: ok(tasks) if gate.wait(60) else []
    bench.hands.launch([bench.running(str(n), name=f"lane{n}") for n in range(10)])
    until(lambda: len(bench.contexts.batches) == 3)
    bench.hands.launch([bench.running("one more")])
    assert len(bench.contexts.batches) == 3
    gate.set()
    assert len(bench.stopped(11)) == 11
    bench.hands.close()


def test_the_spare_hands_are_for_tenants_that_have_none() -> None:
    bench = Bench(concurrency=2)
    gate = threading.Event()
    bench.contexts.act = lambda tasks: ok(tasks) if gate.wait(60) else []
    bench.hands.launch([bench.running(f"a{n}") for n in range(5)])
    until(lambda: len(bench.contexts.batches) == 2)
    assert bench.hands.spare() == Spare(2, frozenset("a"))
    bench.hands.launch([bench.running(f"b{n}", "b") for n in range(2)])
    until(lambda: len(bench.contexts.batches) == 3)
    bench.hands.launch([bench.running(f"c{n}", "c") for n in range(2)])
    until(lambda: len(bench.contexts.batches) == 4)
    bench.hands.launch([bench.running("d", "d")])
    assert bench.hands.spare() == Spare(0, frozenset("abcd"))
    assert [batch[0][0] for batch in bench.contexts.batches] == ["a", "a", "b", "c"]
    gate.set()
    bench.stopped(10)
    until(lambda: bench.hands.spare() == Spare(2, frozenset()))
    bench.hands.close()
