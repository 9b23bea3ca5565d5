"""The hands of a daemon's engine: jobs go, lane by lane, in batches to contexts, and what those report comes back."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as respecified
from typing import Final, Protocol

from msgspec.structs import replace

from hipq.daemon import made, payloads
from hipq.daemon.quotas import TooMuchAtOnce
from hipq.engine.launch import Launcher, Running
from hipq.errors import CannotRun, HipqError, Invalid, OverQuota
from hipq.job.answer import Answer
from hipq.job.ending import Again, Crashed, Ending, Errored, GivenBack, Refused, Succeeded, Waits
from hipq.job.fault import Fault, clean, crash
from hipq.job.model import New
from hipq.job.states import EXECUTING
from hipq.runners.contexts import Handler, Report, Task
from hipq.runners.threads import Threads

AHEAD: Final = 0.1
"""Seconds of work a context gets in one batch: who comes behind a slow one waits for it."""
BATCH: Final = 100
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


Enter = Callable[[str, int, int, tuple[int, int]], None]
"""Whether a tenant may have so many jobs more, and bytes, while it gets rid of those: OverQuota, TooMuchAtOnce."""


class Contexts(Protocol):
    def run(
        self,
        handler: Handler,
        tasks: Sequence[Task],
        started: Callable[[Task], None],
        ended: Callable[[Report], None],
    ) -> list[Task]: ...
    def abandon(self, job_id: str) -> None: ...
    def withdraw(self, job_id: str) -> bool: ...
    def close(self) -> None: ...


class ContextHands:
    broken = False

    def __init__(
        self,
        contexts: Contexts,
        handler_of: Callable[[str, str], Handler | None],
        launcher: Launcher,
        queue: int,
        now: Callable[[], int],
        steady: Callable[[], int],
        nudge: Callable[[], None],
        hush: Callable[[], None],
        concurrency: int,
        enter: Enter,
    ) -> None:
        self._contexts = contexts
        self._handler_of = handler_of
        self._launcher = launcher
        self._queue = queue
        self._now = now
        self._steady = steady
        self._nudge = nudge
        self._hush = hush
        self._concurrency = concurrency
        self._enter = enter
        self._changed = threading.Condition()
        self._tenants: dict[str, dict[str, deque[Running]]] = {}
        """What has not been handed to a context, by tenant and lane; whose turn it is comes first."""
        self._waiting = 0
        """How many these are."""
        self._handed: dict[int, list[Running]] = {}
        """By hand what it has given to a context."""
        self._pace: dict[str, float] = {}
        """By lane the seconds a job takes, about."""
        self._threads = 0
        self._free = 0
        self._closed = False
        self._ended: deque[Running] = deque()
        self._others = Threads(self._judge, 4, "hipq-judge")
        """For what is no handler's work: errors to be judged."""

    # -- the engine's side ------------------------------------------------------------------------------------------
    def launch(self, batch: Iterable[Running]) -> None:
        others: list[Running] = []
        with self._changed:
            for running in batch:
                if running.judges or running.row.phase != EXECUTING:
                    others.append(running)
                else:
                    lanes = self._tenants.setdefault(running.row.tenant, {})
                    lanes.setdefault(running.row.lane, deque()).append(running)
                    self._waiting += 1
            missing = min(self._waiting - self._free, self._concurrency - self._threads)
            self._threads += max(missing, 0)
            self._changed.notify_all()
        for _ in range(missing):
            threading.Thread(target=self._work, name="hipq-context", daemon=True).start()
        self._others.launch(others)

    def stopped(self, most: int) -> list[Running]:
        self._hush()  # before looking: who ends from here on is heard the next time
        found: list[Running] = []
        while self._ended and len(found) < most:
            running = self._ended.popleft()
            if not running.abandoned:
                found.append(running)
        return found

    def unstarted(self) -> list[Running]:
        """Also what a context has been given and waits there behind a slow one."""
        with self._changed:
            found = [one for lanes in self._tenants.values() for lane in lanes.values() for one in lane]
            self._tenants, self._waiting = {}, 0
            handed = [one for batch in list(self._handed.values()) for one in batch if not one.started]
        for one in handed:
            if not one.abandoned and isinstance(one.handle, str) and self._contexts.withdraw(one.handle):
                one.handle = WITHDRAWN
                found.append(one)
        return found

    def abandon(self, running: Running, gently: bool = False) -> None:  # noqa: ARG002 - contexts are killed
        running.abandoned = True
        if isinstance(running.handle, str):
            self._contexts.abandon(running.handle)

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

    def _next(self) -> list[Running]:
        """Jobs of the lane whose turn it is; none when all is over."""
        with self._changed:
            while not self._closed:
                while self._tenants:
                    if batch := [running for running in self._first() if not running.abandoned]:
                        return batch
                self._free += 1
                self._changed.wait()
                self._free -= 1
            return []

    def _first(self) -> list[Running]:
        """Tenants take turns, and so do the lanes of each: one with many lanes is no further on for that."""
        tenant = next(iter(self._tenants))
        lanes = self._tenants.pop(tenant)
        lane = next(iter(lanes))
        some = lanes.pop(lane)
        batch = [some.popleft()]
        most = self._size(lane, len(some) + 1)
        while some and len(batch) < most and not (_apart(batch[0]) or _apart(some[0])):
            batch.append(some.popleft())
        self._waiting -= len(batch)
        if some:
            lanes[lane] = some  # behind the others
        if lanes:
            self._tenants[tenant] = lanes
        return batch

    def _size(self, lane: str, waiting: int) -> int:
        """As many as take a moment; and no more than leave some for the hands that are free."""
        pace = self._pace.get(lane)
        quick = 1 if pace is None else int(AHEAD / max(pace, 1e-6))
        return max(min(quick, BATCH, -(-waiting // (self._free + 1))), 1)

    def _run(self, batch: list[Running]) -> None:
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

    def _in_context(self, handler: Handler, batch: list[Running]) -> list[Running]:
        """Those that never began."""
        by_id = {str(running.row.id): running for running in batch}
        tasks = [_task(running) for running in batch]

        def started(task: Task) -> None:
            by_id[task.id].started = self._steady()

        def ended(report: Report) -> None:
            running = by_id[report.id]
            self._measure(running.row.lane, self._steady() - running.started)
            self._report(running, report, handler)

        if _apart(batch[0]):  # what ran there before may be why its context died: it gets one of its own
            handler = replace(handler, eid=f"{handler.home[-1]} {tasks[0].id}")
        return [by_id[task.id] for task in self._contexts.run(handler, tasks, started, ended)]

    def _measure(self, lane: str, took: int) -> None:
        before = self._pace.get(lane, took / 1e6)
        self._pace[lane] = before + 0.2 * (took / 1e6 - before)
        if len(self._pace) > 10_000:
            self._pace.clear()

    def _report(self, running: Running, report: Report, handler: Handler) -> None:
        text = report.log[-LOG:]
        running.note = {"cost": round(report.seconds, 6), "version": handler.id} | ({"log": text} if text else {})
        try:
            ending = self._ending(report, handler.waits)
            running.children = self._children(running, report, ending)
        except TooMuchAtOnce as error:
            ending = Refused(Fault("failed", str(error)), NEVER_FITS)
        except OverQuota as error:  # nothing of it is saved, so when it is tried again nothing is there twice
            ending = Errored(Fault("error", f"the jobs it asked for were not added: {error}"), NO_ROOM)
        except Exception as error:
            ending = Errored(Fault.of(error))
        self._end(running, ending)

    def _ending(self, report: Report, waits: bool) -> Ending:
        status = report.status
        message = clean(report.error or report.data[:1000].decode("utf-8", "replace"))
        if report.crashed and status != 504:
            return Crashed(crash(message or "its context died"), status)
        if status == WAITS and waits:
            return Waits()
        if 200 <= status < 300:
            return Succeeded(payloads.stored(report.data), status)
        if 400 <= status < 500:
            return Refused(Fault("failed", message or f"status {status}"), status)
        if report.retry_after:
            return Again(Fault("retry", message or f"status {status}"), status, report.retry_after)
        if status < 200:
            return Errored(Fault("retry", message or f"status {status}"), status)
        return Errored(Fault("timeout" if status == 504 else "error", message or f"status {status}"), status)

    def _children(self, running: Running, report: Report, ending: Ending) -> list[New]:
        spawned = list(report.spawned)
        then = made.chained_to(running.row)
        if isinstance(ending, Succeeded) and then:
            spawned.append((then, report.data))
        if isinstance(ending, Waits) and then:
            running.spec = respecified(running.spec, answered=_answer)  # else its answer ends it where none is added
        if not spawned or not isinstance(ending, (Succeeded, Refused, Waits)):
            return []  # of an error nothing is kept
        row = running.row
        freed = (0, 0) if isinstance(ending, Waits) else (1, len(row.job_data))
        self._enter(row.tenant, len(spawned), sum(len(payload) for _, payload in spawned), freed)
        return self._made(running, spawned)

    def _made(self, running: Running, jobs: Sequence[tuple[str, bytes]]) -> list[New]:
        now = self._now() if jobs else 0
        return [made.job(self._queue, running.row.tenant, name, data, made.PLAIN, now) for name, data in jobs]

    def _fail(self, batch: Iterable[Running], ending: Ending) -> None:
        for running in batch:
            if running.ending is None and running.handle is not WITHDRAWN:
                self._end(running, ending)

    def _judge(self, running: Running) -> None:
        try:
            self._launcher.run(running)
            ending = running.ending
            if isinstance(ending, Succeeded) and (then := made.chained_to(running.row)):
                running.children = self._made(running, [(then, payloads.given(ending.result))])
        except BaseException as error:
            running.ending = Errored(Fault.of(error))
        self._ended.append(running)
        self._nudge()

    def _end(self, running: Running, ending: Ending) -> None:
        if not running.started and not isinstance(ending, GivenBack):
            running.started = self._steady()
        self._launcher.finish(running, ending)
        self._ended.append(running)
        self._nudge()


def _answer(_job: object, answer: Answer) -> object:
    """What a job that waited comes to."""
    return answer.data


def _apart(running: Running) -> bool:
    """A context has died over it. (That its daemon died says nothing: no context can end a daemon.)"""
    return running.row.crashes > 1


def _task(running: Running) -> Task:
    """Its handle is the name of this run: the job may be claimed again before the batch ends that it is taken back
    from, and its row may get another token meanwhile."""
    row = running.row
    running.handle = f"{row.id} {row.token}"
    return Task(str(row.id), payloads.given(row.job_data), row.attempt, running.limit / 1e6, running.handle)
