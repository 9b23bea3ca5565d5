"""The hands of a daemon's engine: jobs go, lane by lane, in batches to contexts, and what those report comes back."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from hipq.daemon import job_factory, payloads
from hipq.daemon.handlers.secrets import TenantSecrets
from hipq.daemon.ids import Ids
from hipq.daemon.job_output import JobOutput
from hipq.daemon.tenancy.fair_queue import FairQueue
from hipq.daemon.tenancy.quotas import Chained, TooMuchAtOnce
from hipq.engine.lanes import Spare
from hipq.engine.launch import Launcher
from hipq.errors import CannotRun, HipqError, Invalid, OverQuota
from hipq.executors.execution import Execution
from hipq.executors.threads import Threads
from hipq.job.fault import Fault, FaultKind, clean, crash
from hipq.job.meta import Meta
from hipq.job.model import New, Row
from hipq.job.run_result import Crashed, Errored, FailedRun, GivenBack, Rerun, RunResult, Succeeded, Waits
from hipq.job.spec import Spec
from hipq.job.states import EXECUTING
from hipq.sandbox import ContextJob, ContextPool, Handler, JobReport
from hipq.sandbox.handler import unsigned
from hipq.sandbox.output import CUT
from hipq.sandbox.policy import Policy

LOG: Final = 2_000
"""Characters of what a handler printed that are kept on its job."""
WITHDRAWN: Final = ""
"""The name of a run that was taken back before it began: somebody else may have its job by now."""
WAITS: Final = 202
"""The status of a handler that waits, and has sent its request: the answer comes later."""
NEVER_FITS: Final = 413
"""The status of a handler that asked for more jobs than its tenant may have at all."""
NO_ROOM: Final = 507
"""The status of a handler that asked for more jobs than its tenant may have now."""

_log = logging.getLogger("hipq")


@dataclass(eq=False)
class SandboxExecutor:
    contexts: ContextPool
    handler_of: Callable[[str, str], Handler | None]
    launcher: Launcher
    ids: Ids
    now: Callable[[], int]
    steady: Callable[[], int]
    notify_done: Callable[[], None]
    clear: Callable[[], None]
    concurrency: int
    quotas: Chained
    output: JobOutput
    spec_of: Callable[[str, Policy], Spec]
    secrets: TenantSecrets
    broken = False

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._unstarted = FairQueue(self.concurrency)
        """What has not been handed to a context."""
        self._handed: dict[int, list[Execution]] = {}
        """By hand what it has given to a context."""
        self.kills: Counter[int] = Counter()
        """Contexts that died or were killed while a job ran, by the status of that."""
        self._names: dict[Execution, str] = {}
        """The names of runs, under which contexts know them: a job that was taken back may be claimed again before the
        batch ends that it was taken from, and its row may get another token meanwhile."""
        self._unsaved: dict[int, int] = {}
        """Jobs whose results have got room and may not be in the store yet, and when each was launched."""
        self._threads = 0
        self._free = 0
        self._closed = False
        self._ended: deque[Execution] = deque()
        self._others = Threads(self._judge, 4, "hipq-judge")
        """For what is no handler's work: errors to be judged."""

    # -- the engine's side ------------------------------------------------------------------------------------------
    def launch(self, batch: Iterable[Execution]) -> None:
        others: list[Execution] = []
        with self._changed:
            for execution in batch:
                if execution.only_decides or execution.row.phase != EXECUTING:
                    others.append(execution)
                else:
                    self._unstarted.put(execution)
            missing = min(self._unstarted.waiting - self._free, self._unstarted.usable - self._threads)
            self._threads += max(missing, 0)
            self._changed.notify_all()
        for _ in range(missing):
            threading.Thread(target=self._work, name="hipq-context", daemon=True).start()
        self._others.launch(others)

    def stopped(self, most: int) -> list[Execution]:
        self.clear()  # before looking: who ends from here on is heard the next time
        found: list[Execution] = []
        while self._ended and len(found) < most:
            execution = self._ended.popleft()
            if not execution.abandoned:
                found.append(execution)
        return found

    def unstarted(self) -> list[Execution]:
        """Also what a context has been given and waits there behind a slow one."""
        with self._changed:
            found = list(self._unstarted.clear())
            handed = [one for batch in list(self._handed.values()) for one in batch if not one.run.started]
        for one in handed:
            name = self._names.get(one, WITHDRAWN)
            if not one.abandoned and name != WITHDRAWN and self.contexts.withdraw(name):
                self._names[one] = WITHDRAWN
                found.append(one)
        return found

    def abandon(self, execution: Execution) -> None:
        """Contexts are killed, however gently an execution was abandoned."""
        if name := self._names.get(execution):
            self.contexts.abandon(name)

    def spare(self) -> Spare:
        """See `Engine`."""
        with self._changed:
            return self._unstarted.spare()

    def unsaved(self, in_flight: Mapping[int, Execution]) -> set[tuple[int, int]]:
        """The runs whose results have got room, and which the engine still has `in_flight`."""
        for job_id, launched in list(self._unsaved.items()):
            execution = in_flight.get(job_id)
            if execution is None or execution.launched != launched:
                self._unsaved.pop(job_id, None)
        return set(self._unsaved.items())

    def wait_for_told(self, seconds: float) -> None: ...

    def stuck(self, steady: int) -> int:  # noqa: ARG002
        """A context can always be killed."""
        return 0

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.contexts.close()
        self._others.close()

    # -- a hand's side ----------------------------------------------------------------------------------------------
    def _work(self) -> None:
        me = threading.get_ident()
        while batch := self._next():
            self._handed[me] = batch
            try:
                self._run(batch)
            except Exception as error:  # a bug of ours: it must cost neither the hand nor the jobs
                _log.exception("jobs could not be run")
                self._fail(batch, Errored(Fault.of(error)))
            finally:
                self._handed[me] = []
                for execution in batch:
                    self._names.pop(execution, None)
                    self.output.ended(execution.row.id)
                with self._changed:
                    self._unstarted.give(batch[0].row.tenant)

    def _next(self) -> list[Execution]:
        """Jobs of the lane whose turn it is; none when all is over."""
        with self._changed:
            while not self._closed:
                while some := self._unstarted.take(self._free):
                    if batch := [execution for execution in some if not execution.abandoned]:
                        return batch
                    self._unstarted.give(some[0].row.tenant)
                self._free += 1
                self._changed.wait()
                self._free -= 1
            return []

    def _run(self, batch: list[Execution]) -> None:
        row = batch[0].row
        try:
            handler = self.handler_of(row.tenant, row.job_type)
            if handler is None:
                raise CannotRun(f"there is no handler for {row.job_type}")
            for execution in batch:
                execution.specify(self.spec_of(row.job_type, handler.policy))
            left = self._in_context(handler, batch)
        except (Invalid, CannotRun) as error:  # not here, or not at all: at once it would be the same
            self._fail(batch, Errored(Fault(FaultKind.ERROR, clean(str(error))), 501))
        except HipqError as error:
            self._fail(batch, GivenBack(clean(str(error)), started=False))
        else:
            alive = len(left) < len(batch) or any(one.abandoned for one in batch)  # then it was ended for that one
            reason = "its context ended before its turn came"
            self._fail(
                left, GivenBack(reason, False) if alive else Errored(Fault(FaultKind.ERROR, "no context could be had"))
            )

    def _in_context(self, handler: Handler, batch: list[Execution]) -> list[Execution]:
        """Those that never began."""
        by_id = {str(execution.row.id): execution for execution in batch}
        tasks = [self._task(execution) for execution in batch]

        def started(task: ContextJob) -> None:
            by_id[task.id].run.started = self.steady()

        def ended(report: JobReport) -> None:
            execution = by_id[report.id]
            self.output.ended(execution.row.id)
            self._unstarted.measure(execution.row.lane, (self.steady() - execution.run.started) / 1e6)
            self._report(execution, report, handler)

        if batch[0].row.alone:  # what ran there before may be why its context died: it gets one of its own
            handler = replace(handler, eid=f"{handler.home[-1]} {tasks[0].id}")
        secrets = self.secrets.of(handler)
        sign = self.secrets.sign(handler.tenant) if handler.lang == "http" else unsigned
        return [by_id[task.id] for task in self.contexts.run(handler, tasks, started, ended, secrets, sign)]

    def _task(self, execution: Execution) -> ContextJob:
        row = execution.row
        self._names[execution] = name = f"{row.id} {row.token}"
        self.output.began(row.id)
        printed, seconds = partial(self.output.printed, row.id), execution.limit / 1e6
        return ContextJob(str(row.id), payloads.given(row.job_data), row.attempt, seconds, name, printed)

    def _report(self, execution: Execution, report: JobReport, handler: Handler) -> None:
        if report.crashed:
            with self._changed:
                self.kills[report.status] += 1
        text = report.log if len(report.log) <= LOG else CUT + report.log[len(CUT) - LOG :]
        execution.run.note = {"cost": round(report.seconds, 6), "version": handler.id} | ({"log": text} if text else {})
        try:
            result = self._kept(execution, self._result(execution.row, report, handler.waits))
            execution.run.children = self._children(execution, report, result)
        except TooMuchAtOnce as error:
            result = FailedRun(Fault(FaultKind.FAILED, str(error)), NEVER_FITS)
        except OverQuota as error:  # nothing of it is saved, so when it is tried again nothing is there twice
            result = Errored(Fault(FaultKind.ERROR, f"the jobs it asked for were not added: {error}"), NO_ROOM)
        except Exception as error:
            result = Errored(Fault.of(error))
        self._end(execution, result)

    def _kept(self, execution: Execution, result: RunResult) -> RunResult:
        """What has a result needs room for that."""
        if isinstance(result, Succeeded):
            row, size = execution.row, len(result.result) + len(execution.row.job_data)
            try:
                if self.quotas.keep(row.tenant, size):
                    self._unsaved[row.id] = execution.launched  # first: a count must know that the store has not got it
                    self.quotas.kept(row.tenant, size)
            except OverQuota as error:
                return Errored(Fault(FaultKind.ERROR, f"its result was not kept: {error}"), NO_ROOM)
        return result

    def _result(self, row: Row, report: JobReport, waits: bool) -> RunResult:
        status = report.status
        message = clean(report.error or report.data[:1000].decode("utf-8", "replace"))
        if report.crashed and status != 504:
            return Crashed(crash(message or "its context died"), status)
        if status == WAITS and waits:
            return Waits(is_answer_read=bool(job_factory.chained_to(row)))  # a job follows, with the answer
        if 200 <= status < 300:
            return Succeeded(payloads.stored(report.data), status)
        message = message or f"status {status}"
        if 400 <= status < 500:
            return FailedRun(Fault(FaultKind.FAILED, message), status)
        if report.retry_after:
            return Rerun(Fault(FaultKind.RETRY, message), status, report.retry_after)
        kind = FaultKind.RETRY if status < 200 else FaultKind.TIMEOUT if status == 504 else FaultKind.ERROR
        return Errored(Fault(kind, message), status)

    def _children(self, execution: Execution, report: JobReport, result: RunResult) -> list[New]:
        row, spawned = execution.row, list(report.spawned)
        if isinstance(result, Succeeded) and (then := job_factory.chained_to(row)):
            spawned.append((then, report.data))
        if not spawned or not isinstance(result, (Succeeded, FailedRun, Waits)):
            return []  # of an error nothing is kept
        freed = (0, 0) if isinstance(result, Waits) else (1, len(row.job_data))
        self.quotas.enter(row.tenant, len(spawned), sum(len(payload) for _, payload in spawned), freed)
        return self._made(execution, spawned)

    def _made(self, execution: Execution, jobs: Sequence[tuple[str, bytes]]) -> list[New]:
        now, tenant, meta = self.now(), execution.row.tenant, Meta(parent=execution.row.id).dump()
        return [
            replace(job_factory.job(self.ids.queue, tenant, name, data, job_factory.PLAIN, now, job_id), meta=meta)
            for job_id, (name, data) in zip(self.ids.for_store(tenant, len(jobs)), jobs, strict=True)
        ]

    def _fail(self, batch: Iterable[Execution], result: RunResult) -> None:
        for execution in batch:
            if execution.run.result is None and self._names.get(execution) != WITHDRAWN:
                self._end(execution, result)

    def _judge(self, execution: Execution) -> None:
        row = execution.row
        try:
            if handler := self.handler_of(row.tenant, row.job_type):
                execution.specify(self.spec_of(row.job_type, handler.policy))
        except HipqError:
            pass  # the store is away: the daemon's own rules must do
        try:
            self.launcher.run(execution)
            result = execution.run.result
            if isinstance(result, Succeeded) and (then := job_factory.chained_to(execution.row)):
                execution.run.children = self._made(execution, [(then, payloads.given(result.result))])
        except BaseException as error:
            execution.run.result = Errored(Fault.of(error))
        self._hand_back(execution)

    def _end(self, execution: Execution, result: RunResult) -> None:
        if not execution.run.started and not isinstance(result, GivenBack):
            execution.run.started = self.steady()
        self.launcher.finish(execution, result)
        self._hand_back(execution)

    def _hand_back(self, execution: Execution) -> None:
        self._ended.append(execution)
        self.notify_done()
