"""One function for each thing that can happen to a stored job: the row after it, from the row before it.

Each passes through legal moves only, changes the token, and leaves an entry in the history.
"""

from __future__ import annotations

from msgspec.structs import replace

from hipq.job import states
from hipq.job.event_names import JobEvent
from hipq.job.fault import Fault, FaultKind, crash, details
from hipq.job.model import ALONE, SUSPECT, Row, remember
from hipq.job.order import Order
from hipq.job.run_result import Edits, Rerun
from hipq.job.states import DECIDING, DONE, ERROR, FINAL, INITIAL, NONE, READY, RETRY, RUNNING, SCHEDULED, Code, follow
from hipq.job.when import later
from hipq.job.windows import opening

CRASHES_ALLOWED = 3
"""How many crashes of its own end a job without a retry handler; also of a job whose other code crashes."""
CRASH_PAUSES = (5.0, 30.0)
"""Seconds until the next try after the first and the second crash of a job without a retry handler."""


def succeeded(row: Row, result: str, exitcode: int, now: int) -> Row:
    return replace(
        row,
        state=follow(row.state, FINAL), phase=DONE, owner=0, held=0, token=row.token + 1,
        error=NONE, code=Code.OK, exitcode=exitcode, result=result, wait="",
        history=remember(row.history, now, JobEvent.OK), update_time=now,
    )  # fmt: skip


def refused(row: Row, fault: Fault, exitcode: int, now: int) -> Row:
    """The handler says that the job can never succeed."""
    return _ended(row, fault, Code.FAILED, exitcode, now, JobEvent.FAILED, FINAL)


def errored(row: Row, fault: Fault, exitcode: int, now: int, event: str = JobEvent.ERROR) -> Row:
    """The job has failed: the copy that its retry handler gets. It had a run of its own, so it is no longer a
    suspect."""
    return replace(
        row,
        state=follow(row.state, ERROR), phase=DECIDING, owner=0, held=0, token=row.token + 1,
        failures=row.failures + 1, crashes=0, error=fault.dump(), code=Code.ERROR if exitcode >= 500 else Code.RETRY,
        exitcode=exitcode, history=remember(row.history, now, event, **details(fault)), update_time=now,
    )  # fmt: skip


def edited(row: Row, edits: Edits) -> Row:
    """A failed job with the changes that its retry handler made to its copy. No transition: they are saved with the
    verdict."""
    return replace(
        row,
        job_data=row.job_data if edits.data is None else edits.data,
        priority=row.priority if edits.priority is None else edits.priority,
        scheduled_run_time=row.scheduled_run_time if edits.at is None else edits.at,
    )


def gave_up(row: Row, fault: Fault, now: int) -> Row:
    """A failed job that its retry handler, or the lack of one, ends."""
    return _ended(row, fault, row.code, row.exitcode, now, JobEvent.GAVE_UP, FINAL)


def retried(row: Row, again: Rerun, order: Order, now: int) -> Row:
    """A failed job whose retry handler wants another run."""
    return _ready_again(row, Fault.load(row.error), again.when(now), order, now, RETRY, data=again.data)


def asked_again(row: Row, again: Rerun, order: Order, now: int) -> Row:
    """The handler asked for another run, which is not a failure."""
    row = replace(row, code=Code.RETRY, exitcode=again.exitcode, crashes=0)
    return _ready_again(row, again.fault, again.when(now), order, now, ERROR, RETRY, data=again.data)


def outlived(row: Row, fault: Fault, exitcode: int, now: int) -> Row:
    """The job's lifetime is over, so its error is final."""
    code = Code.ERROR if exitcode >= 500 else Code.RETRY
    return _ended(row, fault, code, exitcode, now, JobEvent.LIFETIME_OVER, ERROR, FINAL)


def given_back(row: Row, reason: str, started: bool, now: int) -> Row:
    """The job goes back to its place in the queue at no cost. A run that never started is not an attempt."""
    if _looked_at(row):
        return replace(row, owner=0, token=row.token + 1, update_time=now)
    return replace(
        _back(row, Fault(FaultKind.GIVEN_BACK, reason), now, JobEvent.GIVEN_BACK),
        attempt=row.attempt - (0 if started else 1),
    )


def rescued(row: Row, now: int) -> Row:
    """The job's engine is gone. Nobody knows whether the job ran, so the attempt counts, and the job is a suspect from
    now on. Code other than its handler runs alone in a process: it is too rare to share one."""
    if _looked_at(row):
        return replace(given_back(row, "", False, now), crashes=max(row.crashes, ALONE))
    fault = Fault(FaultKind.RESCUED, f"engine {row.owner} lost its lease while it had this job")
    return replace(_back(row, fault, now, JobEvent.RESCUED), crashes=max(row.crashes, SUSPECT))


def suspected(row: Row, fault: Fault, now: int) -> Row:
    """The process that ran the job died, but other jobs had used it before, and one of them may have caused that. So
    the crash costs the job nothing, and its code runs alone from now on."""
    if _looked_at(row):
        return replace(given_back(row, "", False, now), crashes=max(row.crashes, ALONE))
    return replace(_back(row, fault, now, JobEvent.CRASHED), crashes=max(row.crashes, ALONE))


def crashed(row: Row, fault: Fault, exitcode: int, now: int, has_retry_handler: bool) -> Row:
    """The handler killed a process in which it was alone: an error, and the job goes on running alone. A retry handler
    decides by the failures; where there is none, the crashes are counted."""
    crashes = 1 + (ALONE if has_retry_handler else max(row.crashes, ALONE))
    return replace(errored(row, fault, exitcode, now, JobEvent.CRASHED), crashes=crashes)


def crashed_aside(row: Row, fault: Fault, now: int) -> Row:
    """The retry handler or the cancel handler killed a process: it is called again, alone. A job whose retry handler
    cannot be asked ends with its error."""
    row = replace(row, crashes=max(row.crashes, ALONE) + 1)
    if row.state == ERROR and row.crashes_counted >= CRASHES_ALLOWED:
        message = f"its retry handler crashed ({fault.message}) when asked about: {Fault.load(row.error)}"
        return gave_up(row, crash(message), now)
    return given_back(row, "", False, now)


def cancelled(row: Row, reason: str, now: int) -> Row:
    path = {INITIAL: (RUNNING, ERROR, FINAL), RETRY: (RUNNING, ERROR, FINAL), RUNNING: (ERROR, FINAL), ERROR: (FINAL,)}
    fault = Fault(FaultKind.CANCELLED, reason)
    return _ended(row, fault, Code.CANCELLED, 499, now, JobEvent.CANCELLED, *path[row.state])


def adopted(row: Row, owner: int, now: int) -> Row:
    """The job's engine lost its lease, but nobody took the job: it goes on under the engine's new lease."""
    return replace(row, owner=owner, token=row.token + 1, update_time=now)


def ranked(row: Row, order: Order, now: int) -> Row:
    """The job was added in plain SQL, by a program that does not know the order of the queue. The columns that only
    engines write become what they are for a new job: what that program has put there might not be readable later."""
    return replace(
        row,
        rank=order.rank(row.scheduled_run_time, row.priority), token=row.token + 1, attempt=0, failures=0, crashes=0,
        deadline=0, wait="", wait_key="", code=NONE, exitcode=0, result="", history="[]", update_time=now,
    )  # fmt: skip


def unreadable(row: Row, reason: str, now: int) -> Row:
    """The job was added in plain SQL, with values that no engine can read. No handler ran: `attempt` stays."""
    path = (RUNNING, ERROR, FINAL)
    fault = Fault(FaultKind.ERROR, reason)
    return _ended(replace(row, history="[]"), fault, Code.ERROR, 500, now, JobEvent.ERROR, *path)


def to_next_window(row: Row, order: Order, now: int) -> Row:
    """The job's window closed before it could start: it is scheduled for the next opening. Not an attempt."""
    at = opening(row.time_windows, now)
    return _postponed(row, at, order, now, JobEvent.WINDOW_CLOSED)


def deferred(row: Row, until: int, order: Order, now: int) -> Row:
    """The queue's throttler has deferred the job."""
    return _postponed(row, opening(row.time_windows, until), order, now, JobEvent.DEFERRED)


def parked(row: Row, now: int) -> Row:
    """The queue's throttler has not admitted the job now. The job keeps its place, and the throttler is asked about it
    again."""
    return replace(row, phase=states.PARKED, token=row.token + 1, update_time=now)


def rejected(row: Row, reason: str, now: int) -> Row:
    """The queue's throttler has rejected the job. No handler ran, so `attempt` stays."""
    path = (RUNNING, ERROR, FINAL)
    return _ended(row, Fault(FaultKind.REJECTED, reason), Code.FAILED, 403, now, JobEvent.REJECTED, *path)


def run_now(row: Row, order: Order, now: int) -> Row:
    """A job that waits for its time runs now instead."""
    return replace(
        row,
        phase=READY, scheduled_run_time=now, rank=order.rank(now, row.priority), token=row.token + 1,
        history=remember(row.history, now, JobEvent.HURRIED), update_time=now,
    )  # fmt: skip


def changed(row: Row, order: Order, now: int, *, at: int | None = None, priority: int | None = None) -> Row:
    """Somebody wants the job to run at another time, or before or after others."""
    priority = row.priority if priority is None else priority
    details = {} if priority == row.priority else {"priority": priority}
    if at is None:
        time, phase = row.scheduled_run_time, row.phase
    else:
        time = opening(row.time_windows, at)
        phase, details = READY if time <= now else SCHEDULED, {**details, "scheduled": time}
    return replace(
        row,
        phase=phase, scheduled_run_time=time, priority=priority, rank=order.rank(time, priority), token=row.token + 1,
        history=remember(row.history, now, JobEvent.CHANGED, **details), update_time=now,
    )  # fmt: skip


def claimed(row: Row, owner: int, now: int, critical: bool = False) -> Row:
    """What a store's claim makes, in SQL, of a ready row, or of one that waits for other code than its handler. This is
    the model of it: the contract suite compares every store with it."""
    if _looked_at(row):
        return replace(row, owner=owner, token=row.token + 1, update_time=now)
    return replace(
        row,
        state=follow(row.state, RUNNING), phase=states.EXECUTING, owner=owner,
        held=0 if critical else row.throttle_factor,
        token=row.token + 1, attempt=row.attempt + 1, error=NONE, deadline=later(now, row.timeout),
        history=remember(row.history, now, JobEvent.CLAIMED, by=owner), update_time=now,
    )  # fmt: skip


def _looked_at(row: Row) -> bool:
    """Whether the engine that has claimed the job runs other code of it than its handler."""
    return row.state == ERROR or row.phase in (states.ANSWERED, states.CANCELLING)


def _ended(row: Row, fault: Fault, code: str, exitcode: int, now: int, event: str, *path: str) -> Row:
    return replace(
        row,
        state=follow(row.state, *path), phase=DONE, owner=0, held=0, token=row.token + 1,
        error=fault.dump(), code=code, exitcode=exitcode, wait="",
        history=remember(row.history, now, event, **details(fault)), update_time=now,
    )  # fmt: skip


def _postponed(row: Row, at: int, order: Order, now: int, event: str) -> Row:
    return replace(
        row,
        phase=READY if at <= now else SCHEDULED, scheduled_run_time=at, rank=order.rank(at, row.priority),
        token=row.token + 1, history=remember(row.history, now, event, scheduled=at), update_time=now,
    )  # fmt: skip


def _ready_again(row: Row, fault: Fault, at: int, order: Order, now: int, *path: str, data: str = "") -> Row:
    at = opening(row.time_windows, at)
    return replace(
        row,
        state=follow(row.state, *path), phase=READY if at <= now else SCHEDULED, owner=0, held=0, token=row.token + 1,
        scheduled_run_time=at, rank=order.rank(at, row.priority), error=fault.dump(),
        job_data=data or row.job_data, deadline=0,
        history=remember(row.history, now, JobEvent.AGAIN, scheduled=at, **details(fault)), update_time=now,
    )  # fmt: skip


def _back(row: Row, fault: Fault, now: int, event: str) -> Row:
    """The job becomes ready with its old time and rank: it keeps its place."""
    return replace(
        row,
        state=follow(row.state, ERROR, RETRY), phase=READY, owner=0, held=0, token=row.token + 1, deadline=0,
        error=fault.dump(), history=remember(row.history, now, event, **details(fault)), update_time=now,
    )  # fmt: skip
