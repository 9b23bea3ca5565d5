"""One function for each thing that can happen to a job that waits for its answer; the others are in `transitions`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from hipq.job import transitions, waiting
from hipq.job.event_names import JobEvent
from hipq.job.fault import Fault, FaultKind, details, timeout
from hipq.job.model import ALONE, Row, remember
from hipq.job.order import Order
from hipq.job.run_result import FailedRun, Rerun, Succeeded
from hipq.job.states import ANSWERED, CANCELLING, ERROR, NONE, RETRY, RUNNING, WAITING, follow
from hipq.job.waiting import Waiting
from hipq.job.when import later

LONGEST_PAUSE = 300.0
"""The most seconds between two calls of an answer handler that fails."""


def waits(row: Row, wait: Waiting, now: int, key: str = "") -> Row:
    """The job has sent its request. No engine owns it now, so no engine's crash can touch it.

    `key`: one more key under which answers find the job (case 16). It replaces the key of the last wait, which the job
    kept until now, since the answer to its first request might have arrived during a retry. A job that its answer
    handler lets wait anew waits for the same request, so it keeps the key of its wait unless it is given another."""
    if key == row.job_key:
        key = ""
    elif not key and row.phase == ANSWERED:
        key = row.wait_key
    return _waits(replace(row, wait_key=key), wait, now, JobEvent.WAITS, **({"key": key} if key else {}))


def progressed(row: Row, extend: float, now: int) -> Row:
    """The job has looked at an answer that was not the last one: a heartbeat (cases 12 and 13)."""
    wait = waiting.load(row.wait).anew()
    return _waits(row, replace(wait, until=later(now, extend)) if extend else wait, now, JobEvent.PROGRESS)


def answered(row: Row, now: int) -> Row:
    """The job has its answer, for its answer handler to look at. A pending retry is off (case 5); such a job counts
    against no limit, since it gave back what it held when it failed."""
    wait = waiting.load(row.wait).anew()
    if row.phase != WAITING:  # its time was over: if more answers are to come, it has as long again
        wait = replace(wait, until=later(now, row.timeout), cause=None)
    return _with_answer(
        row, now, phase=ANSWERED, owner=0, error=NONE, wait=wait.dump(), token=row.token + 1, update_time=now
    )


def _with_answer(row: Row, now: int, **changes: Any) -> Row:
    path = {RUNNING: (), ERROR: (RETRY, RUNNING), RETRY: (RUNNING,)}[row.state]
    return replace(
        row,
        state=follow(row.state, *path),
        crashes=min(row.crashes, ALONE),  # it has not crashed over this
        history=remember(row.history, now, JobEvent.ANSWERED),
        **changes,
    )


def agreed(row: Row, fence: bool, calls_off: bool) -> Row:
    """The job with what its code says about answers, for an answer that arrives before it has waited, or in a program
    without that code."""
    return replace(row, wait=replace(waiting.load(row.wait), fence=fence, calls_off=calls_off).dump())


def ended_by(row: Row, result: str, now: int) -> Row:
    """The answer is the job's result: it has no answer handler."""
    return transitions.succeeded(_with_answer(row, now), result, 200, now)


def unread(row: Row, fault: Fault, now: int) -> Row:
    """The answer handler failed: the job keeps its answer and looks at it again after a pause (case 14). That goes on
    until its wait is over, and for its time-out or five minutes at least: what the handler lacks may come back."""
    wait = waiting.load(row.wait)
    gives_up = wait.gives_up or max(wait.until, later(now, max(row.timeout, LONGEST_PAUSE)))
    wait = replace(wait, tries=wait.tries + 1, gives_up=gives_up, cause=fault)
    again = min(later(now, unread_pause(wait.tries)), gives_up)
    return replace(
        row,
        phase=WAITING, owner=0, crashes=0, wait=wait.dump(), deadline=again,
        history=remember(row.history, now, JobEvent.ANSWER_FAILED, **details(fault)), token=row.token + 1,
        update_time=now,
    )  # fmt: skip


def answer_given_up(row: Row, fault: Fault, now: int) -> Row:
    """The answer handler still failed when the time for it was over: an error, for the retry handler. The job lets go
    of that answer, so that it holds neither its place in the limits for ever nor a better answer back."""
    tries = waiting.load(row.wait).tries + 1
    return transitions.errored(
        row, timeout(f"its answer handler failed {tries} times, the last time with {fault}"), 504, now
    )


def crashed(row: Row, fault: Fault, exitcode: int, now: int, has_retry_handler: bool) -> Row:
    """The answer handler took its process down: the job looks at its answer again after a pause, alone in a process.
    After `CRASHES_ALLOWED` such crashes that is an error of the job."""
    crashes = max(row.crashes, ALONE) + 1
    if row.crashes_counted + 1 >= transitions.CRASHES_ALLOWED:
        return transitions.crashed(row, fault, exitcode, now, has_retry_handler)
    return replace(unread(row, fault, now), crashes=crashes)


def looks_again(row: Row, now: int) -> Row:
    """The pause after a failure of the answer handler is over."""
    return replace(row, phase=ANSWERED, token=row.token + 1, update_time=now)


def cancelling(row: Row, cause: Fault, now: int) -> Row:
    """The job is given up, and its cancel handler is to call the external work off (case 17)."""
    wait = replace(waiting.load(row.wait), cause=cause)
    return replace(
        row,
        phase=CANCELLING, owner=0, wait=wait.dump(), token=row.token + 1,
        history=remember(row.history, now, JobEvent.CANCELLING, **details(cause)), update_time=now,
    )  # fmt: skip


def cancel_handled(row: Row, fault: Fault | None, order: Order, now: int) -> Row:
    """The cancel handler has run: the job ends as it would have without one. An error of the handler is on record."""
    wait = waiting.load(row.wait)
    event = JobEvent.CANCEL_HANDLER_FAILED if fault else JobEvent.CANCEL_HANDLER_ENDED
    history = remember(row.history, now, event, **(details(fault) if fault else {}))
    row = replace(row, crashes=0, history=history, wait=replace(wait, cause=None).dump())
    if wait.cause and wait.cause.kind == FaultKind.CANCELLED:
        return transitions.cancelled(row, wait.cause.message, now)
    return timed_out(row, order, now)


def overdue(row: Row, order: Order, now: int) -> Row:
    """A waiting job's deadline passed: it looks at its answer again, or it has none and has timed out."""
    wait = waiting.load(row.wait)
    if wait.tries:
        return looks_again(row, now)
    if wait.calls_off:
        return cancelling(row, _silence(row), now)
    return timed_out(row, order, now)


def timed_out(row: Row, order: Order, now: int) -> Row:
    """No answer arrived in time: an error, unless the wait said what else silence means (case 18)."""
    wait, fault = waiting.load(row.wait), _silence(row)
    chosen = wait.on_timeout
    if chosen is None:
        return transitions.errored(row, fault, 504, now)
    row = replace(row, history=remember(row.history, now, JobEvent.TIMED_OUT))
    match chosen:
        case Succeeded():
            return transitions.succeeded(row, chosen.result, chosen.exitcode, now)
        case FailedRun():
            return transitions.refused(row, chosen.fault, chosen.exitcode, now)
        case Rerun() if 0 < wait.life <= now:
            return transitions.outlived(row, fault, 504, now)
        case Rerun():
            return transitions.asked_again(row, chosen, order, now)


def unread_pause(tries: int) -> float:
    """Seconds until an answer handler that failed `tries` times is called again: 1, 2, 4 ... up to five minutes."""
    return min(2.0 ** min(tries - 1, 20), LONGEST_PAUSE)


def _silence(row: Row) -> Fault:
    wait = waiting.load(row.wait)
    if wait.heartbeat and row.deadline < wait.until:
        return timeout(f"no sign of life for {wait.heartbeat:g} s")
    return timeout("no answer came before its time-out")


def _waits(row: Row, wait: Waiting, now: int, event: str, **more: str) -> Row:
    return replace(
        row,
        phase=WAITING, owner=0, crashes=0, wait=wait.dump(), deadline=wait.deadline(now), token=row.token + 1,
        history=remember(row.history, now, event, **more), update_time=now,
    )  # fmt: skip
