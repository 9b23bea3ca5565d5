"""The hands of a daemon's engine: jobs go, lane by lane, in batches to contexts, and what those report comes back."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as respecified
from typing import Final, Protocol

from msgspec.structs import replace

from hipq.daemon import job_factory, payloads
from hipq.daemon.ids import Ids
from hipq.daemon.tenancy.fair_queue import FairQueue, is_apart
from hipq.daemon.tenancy.quotas import TooMuchAtOnce
from hipq.engine.lanes import Spare
from hipq.engine.launch import Execution, Launcher
from hipq.errors import CannotRun, HipqError, Invalid, OverQuota
from hipq.executors.threads import Threads
from hipq.job.answer import Answer
from hipq.job.fault import Fault, clean, crash
from hipq.job.model import New
from hipq.job.run_result import Crashed, Errored, FailedRun, GivenBack, Rerun, RunResult, Succeeded, Waits
from hipq.job.states import EXECUTING
from hipq.sandbox import ContextJob, Handler, JobReport

LOG: Final = 2_000
"""Characters of what a handler printed that are kept on its job."""
WITHDRAWN: Final = object()
"""The handle of a job that was taken back before it began: somebody else may have it by now."""
WAITS: Final = 202
"""The status of a handler that waits, and has sent its request: the answer comes later."""
NEVER_FITS: Final = 413
NO_ROOM: Final = 507
"""Of one that asked for more jobs than its tenant may have: at all, or now."""

_log = logging.getLogger("hipq")


class Quotas(Protocol):
    """What tenants may have: OverQuota, TooMuchAtOnce."""

    def enter(self, tenant: str, jobs: int, size: int, freed: tuple[int, int]) -> None:
        """So many jobs more, and bytes, while it gets rid of those."""

    def keep(self, tenant: str, size: int) -> None:
        """So many bytes of a job that ends."""


class Contexts(Protocol):
    def run(
        self,
        handler: Handler,
        tasks: Sequence[ContextJob],
        started: Callable[[ContextJob], None],
        ended: Callable[[JobReport], None],
    ) -> list[ContextJob]: ...
    def abandon(self, job_id: str) -> None: ...
    def withdraw(self, job_id: str) -> bool: ...
    def close(self) -> None: ...


class SandboxExecutor:
    broken = False

    def __init__(
        self,
        contexts: Contexts,
        handler_of: Callable[[str, str], Handler | None],
        launcher: Launcher,
        ids: Ids,
        now: Callable[[], int],
        steady: Callable[[], int],
        notify_done: Callable[[], None],
        clear: Callable[[], None],
        concurrency: int,
        quotas: Quotas,
    ) -> None:
        self._contexts = contexts
        self._handler_of = handler_of
        self._launcher = launcher
        self._ids = ids
        self._now = now
        self._steady = steady
        self._notify_done = notify_done
        self._clear = clear
        self._quotas = quotas
        self._changed = threading.Condition()
        self._unstarted = FairQueue(concurrency)
        """What has not been handed to a context."""
        self._handed: dict[int, list[Execution]] = {}
        """By hand what it has given to a context."""
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
            for running in batch:
                if running.only_decides or running.row.phase != EXECUTING:
                    others.append(running)
                else:
                    self._unstarted.put(running)
            missing = min(self._unstarted.waiting - self._free, self._unstarted.usable - self._threads)
            self._threads += max(missing, 0)
            self._changed.notify_all()
        for _ in range(missing):
            threading.Thread(target=self._work, name="hipq-context", daemon=True).start()
        self._others.launch(others)

    def stopped(self, most: int) -> list[Execution]:
        self._clear()  # before looking: who ends from here on is heard the next time
        found: list[Execution] = []
        while self._ended and len(found) < most:
            running = self._ended.popleft()
            if not running.abandoned:
                found.append(running)
        return found

    def unstarted(self) -> list[Execution]:
        """Also what a context has been given and waits there behind a slow one."""
        with self._changed:
            found = list(self._unstarted.clear())
            handed = [one for batch in list(self._handed.values()) for one in batch if not one.started]
        for one in handed:
            if not one.abandoned and isinstance(one.handle, str) and self._contexts.withdraw(one.handle):
                one.handle = WITHDRAWN
                found.append(one)
        return found

    def abandon(self, running: Execution, gently: bool = False) -> None:  # noqa: ARG002 - contexts are killed
        running.abandoned = True
        if isinstance(running.handle, str):
            self._contexts.abandon(running.handle)

    def spare(self) -> Spare:
        """See `Engine`."""
        with self._changed:
            return self._unstarted.spare()

    def wait_for_told(self, seconds: float) -> None: ...

    def stuck(self, steady: int) -> int:  # noqa: ARG002
        """A context can always be killed."""
        return 0

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._contexts.close()
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
                with self._changed:
                    self._unstarted.give(batch[0].row.tenant)

    def _next(self) -> list[Execution]:
        """Jobs of the lane whose turn it is; none when all is over."""
        with self._changed:
            while not self._closed:
                while some := self._unstarted.take(self._free):
                    if batch := [running for running in some if not running.abandoned]:
                        return batch
                    self._unstarted.give(some[0].row.tenant)
                self._free += 1
                self._changed.wait()
                self._free -= 1
            return []

    def _run(self, batch: list[Execution]) -> None:
        row = batch[0].row
        try:
            handler = self._handler_of(row.tenant, row.job_type)
            if handler is None:
                fault = Fault("error", f"there is no handler for {row.job_type}")
                self._fail(batch, Errored(fault, 501))
                return
            left = self._in_context(handler, batch)
        except (Invalid, CannotRun) as error:  # not here, or not at all: at once it would be the same
            self._fail(batch, Errored(Fault("error", clean(str(error))), 501))
        except HipqError as error:
            self._fail(batch, GivenBack(clean(str(error)), started=False))
        else:
            alive = len(left) < len(batch) or any(one.abandoned for one in batch)  # then it was ended for that one
            reason = "its context ended before its turn came"
            self._fail(left, GivenBack(reason, False) if alive else Errored(Fault("error", "no context could be had")))

    def _in_context(self, handler: Handler, batch: list[Execution]) -> list[Execution]:
        """Those that never began."""
        by_id = {str(running.row.id): running for running in batch}
        tasks = [_task(running) for running in batch]

        def started(task: ContextJob) -> None:
            by_id[task.id].started = self._steady()

        def ended(report: JobReport) -> None:
            running = by_id[report.id]
            self._unstarted.measure(running.row.lane, (self._steady() - running.started) / 1e6)
            self._report(running, report, handler)

        if is_apart(batch[0]):  # what ran there before may be why its context died: it gets one of its own
            handler = replace(handler, eid=f"{handler.home[-1]} {tasks[0].id}")
        return [by_id[task.id] for task in self._contexts.run(handler, tasks, started, ended)]

    def _report(self, running: Execution, report: JobReport, handler: Handler) -> None:
        text = report.log[-LOG:]
        running.note = {"cost": round(report.seconds, 6), "version": handler.id} | ({"log": text} if text else {})
        try:
            ending = self._kept(running, self._ending(report, handler.waits))
            running.children = self._children(running, report, ending)
        except TooMuchAtOnce as error:
            ending = FailedRun(Fault("failed", str(error)), NEVER_FITS)
        except OverQuota as error:  # nothing of it is saved, so when it is tried again nothing is there twice
            ending = Errored(Fault("error", f"the jobs it asked for were not added: {error}"), NO_ROOM)
        except Exception as error:
            ending = Errored(Fault.of(error))
        self._end(running, ending)

    def _kept(self, running: Execution, ending: RunResult) -> RunResult:
        """What has a result needs room for that."""
        if isinstance(ending, Succeeded):
            try:
                self._quotas.keep(running.row.tenant, len(ending.result) + len(running.row.job_data))
            except OverQuota as error:
                return Errored(Fault("error", f"its result was not kept: {error}"), NO_ROOM)
        return ending

    def _ending(self, report: JobReport, waits: bool) -> RunResult:
        status = report.status
        message = clean(report.error or report.data[:1000].decode("utf-8", "replace"))
        if report.crashed and status != 504:
            return Crashed(crash(message or "its context died"), status)
        if status == WAITS and waits:
            return Waits()
        if 200 <= status < 300:
            return Succeeded(payloads.stored(report.data), status)
        if 400 <= status < 500:
            return FailedRun(Fault("failed", message or f"status {status}"), status)
        if report.retry_after:
            return Rerun(Fault("retry", message or f"status {status}"), status, report.retry_after)
        if status < 200:
            return Errored(Fault("retry", message or f"status {status}"), status)
        return Errored(Fault("timeout" if status == 504 else "error", message or f"status {status}"), status)

    def _children(self, running: Execution, report: JobReport, ending: RunResult) -> list[New]:
        spawned = list(report.spawned)
        then = job_factory.chained_to(running.row)
        if isinstance(ending, Succeeded) and then:
            spawned.append((then, report.data))
        if isinstance(ending, Waits) and then:
            running.spec = respecified(running.spec, answered=_answer)  # else its answer ends it where none is added
        if not spawned or not isinstance(ending, (Succeeded, FailedRun, Waits)):
            return []  # of an error nothing is kept
        row = running.row
        freed = (0, 0) if isinstance(ending, Waits) else (1, len(row.job_data))
        self._quotas.enter(row.tenant, len(spawned), sum(len(payload) for _, payload in spawned), freed)
        return self._made(running, spawned)

    def _made(self, running: Execution, jobs: Sequence[tuple[str, bytes]]) -> list[New]:
        now, tenant = self._now(), running.row.tenant
        return [
            job_factory.job(self._ids.queue, tenant, name, data, job_factory.PLAIN, now, job_id)
            for job_id, (name, data) in zip(self._ids.for_store(tenant, len(jobs)), jobs, strict=True)
        ]

    def _fail(self, batch: Iterable[Execution], ending: RunResult) -> None:
        for running in batch:
            if running.ending is None and running.handle is not WITHDRAWN:
                self._end(running, ending)

    def _judge(self, running: Execution) -> None:
        try:
            self._launcher.run(running)
            ending = running.ending
            if isinstance(ending, Succeeded) and (then := job_factory.chained_to(running.row)):
                running.children = self._made(running, [(then, payloads.given(ending.result))])
        except BaseException as error:
            running.ending = Errored(Fault.of(error))
        self._ended.append(running)
        self._notify_done()

    def _end(self, running: Execution, ending: RunResult) -> None:
        if not running.started and not isinstance(ending, GivenBack):
            running.started = self._steady()
        self._launcher.finish(running, ending)
        self._ended.append(running)
        self._notify_done()


def _answer(_job: object, answer: Answer) -> object:
    """What a job that waited comes to."""
    return answer.data


def _task(running: Execution) -> ContextJob:
    """Its handle is the name of this run: the job may be claimed again before the batch ends that it is taken back
    from, and its row may get another token meanwhile."""
    row = running.row
    running.handle = f"{row.id} {row.token}"
    return ContextJob(str(row.id), payloads.given(row.job_data), row.attempt, running.limit / 1e6, running.handle)
