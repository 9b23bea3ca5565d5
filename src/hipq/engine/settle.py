"""Step 5, settle: turn how a run ended into the one write that saves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from hipq.errors import KeyTaken, StoreBusy, StoreRefused
from hipq.executors.execution import Execution
from hipq.job import transitions, wait_transitions, waiting
from hipq.job.answer import Kept
from hipq.job.event_names import RAN, SENT, JobEvent
from hipq.job.fault import Fault, FaultKind, clean, timeout
from hipq.job.model import Change, Ran, Row, remember
from hipq.job.order import Order
from hipq.job.retries import NotRegistered
from hipq.job.run_result import (
    AnswerHandlerFailed,
    CancelHandled,
    Crashed,
    Decided,
    Errored,
    FailedRun,
    GivenBack,
    Progressed,
    Rerun,
    RunResult,
    Succeeded,
    Waits,
)
from hipq.job.spec import Spec
from hipq.job.states import ANSWERED, CANCELLING, ERROR, EXECUTING, FINAL, INITIAL, RETRY
from hipq.job.waiting import Waiting
from hipq.job.when import later
from hipq.stores.claims import Turned
from hipq.stores.protocols import Store

KEEPS_ITS_ANSWER = (AnswerHandlerFailed, Crashed, GivenBack)
"""Results after which a job still has its answer to look at, unless the job ended or failed."""


class _Settled(msgspec.Struct, gc=False):
    """The outcome for a row."""

    after: Row
    event: str
    errored: Row | None = None
    """The row with its failure, before the consequences of that failure."""
    unused: str = ""
    """Why the job could not use its answer."""


def settle(execution: Execution, order: Order, now: int) -> Change:
    """The change that saves a stopped job. A failure goes through its retry handler's verdict, on a copy: nothing runs
    again from memory."""
    row, result, spec = execution.row, execution.run.result, execution.spec
    assert result is not None
    settled = _settled(_with_requests(execution, now) if execution.run.sent else execution, result, order, now)
    after = settled.after
    if execution.run.note:
        after = replace(after, history=remember(after.history, now, RAN, **execution.run.note))
    if after.state != FINAL and (spec.fence or spec.cancelled):
        after = _agreed(after, spec)
    used = _used(execution.answer, result, row, after) if execution.answer else 0
    failed = settled.errored or after
    seeking = _seeking(execution, failed, after, settled.event) if failed.state in (ERROR, RETRY) else None
    ran = _ran(execution, result)
    return Change(
        row, _one_write(row, after), tuple(execution.run.children), settled.event, used, seeking, settled.unused, ran
    )


def _used(answer: Kept, result: RunResult, before: Row, after: Row) -> int:
    """The answer that the job has used up; 0 = it keeps its answer."""
    return 0 if isinstance(result, KEEPS_ITS_ANSWER) and after.state == before.state else answer.id


def _with_requests(execution: Execution, now: int) -> Execution:
    """The execution, whose row now remembers the requests that its code sent."""
    row = execution.row
    for steady, where in execution.run.sent:
        at = min(max(row.update_time + steady - execution.launched, row.update_time), now)
        row = replace(row, history=remember(row.history, at, SENT, to=where))
    return Execution(row, execution.spec, execution.launched, execution.answer, execution.run)


def _ran(execution: Execution, result: RunResult) -> Ran | None:
    """The run, if code of the job other than its retry handler ran."""
    run = execution.run
    is_told = execution.answer is not None and execution.answer.error  # an answer that says so needs no handler
    if not run.started or execution.only_decides or is_told or isinstance(result, GivenBack):
        return None
    took = run.stopped - run.started if run.stopped else execution.limit  # without an end, it ran longer than it may
    fault = None if isinstance(result, Succeeded) else getattr(result, "fault", None)
    return Ran(took / 1e6, fault, run.raised)


def _settled(execution: Execution, result: RunResult, order: Order, now: int) -> _Settled:
    row = execution.row
    match result:
        case Succeeded():
            return _Settled(transitions.succeeded(row, result.result, result.exitcode, now), JobEvent.OK)
        case FailedRun():
            return _Settled(transitions.refused(row, result.fault, result.exitcode, now), JobEvent.FAILED)
        case Rerun():
            return _rerun(execution, result, order, now)
        case Waits():
            return _waits(execution, result, now)
        case Progressed():
            return _Settled(wait_transitions.progressed(row, result.extend, now), JobEvent.PROGRESS)
        case AnswerHandlerFailed():
            return _answer_handler_failed(execution, result, now)
        case CancelHandled():
            return _cancel_handled(row, result.fault, order, now)
        case Errored():
            return _errored(execution, result, now)
        case Decided():
            return _decided(execution, result, order, now)
        case Crashed():
            return _crashed(execution, result, order, now)
        case GivenBack():
            return _Settled(transitions.given_back(row, result.reason, result.started, now), JobEvent.GIVEN_BACK)
        case _:
            assert_never(result)


def _rerun(execution: Execution, result: Rerun, order: Order, now: int) -> _Settled:
    if _outlived(execution, now):
        return _Settled(transitions.outlived(execution.row, result.fault, result.exitcode, now), JobEvent.LIFETIME_OVER)
    return _Settled(transitions.asked_again(execution.row, result, order, now), JobEvent.AGAIN)


def _waits(execution: Execution, result: Waits, now: int) -> _Settled:
    row = execution.row
    latest = row.deadline if row.phase == EXECUTING else waiting.load(row.wait).until
    until = later(now, result.timeout) if result.timeout else latest
    is_direct = execution.spec.answered is None and not result.is_answer_read
    since, life = waiting.since(row), _life(execution)
    wait = Waiting(until, result.heartbeat, result.on_timeout, is_direct, life=life, since=since)
    return _Settled(wait_transitions.waits(row, wait, now, result.key), JobEvent.WAITS)


def _answer_handler_failed(execution: Execution, result: AnswerHandlerFailed, now: int) -> _Settled:
    if _outlived(execution, now):
        return _Settled(transitions.outlived(execution.row, result.fault, 500, now), JobEvent.LIFETIME_OVER)
    if 0 < waiting.load(execution.row.wait).gives_up <= now:
        after = wait_transitions.answer_given_up(execution.row, result.fault, now)
        return _Settled(after, JobEvent.ERROR, unused=Fault.load(after.error).message)
    return _Settled(wait_transitions.unread(execution.row, result.fault, now), JobEvent.ANSWER_FAILED)


def _cancel_handled(row: Row, fault: Fault | None, order: Order, now: int) -> _Settled:
    event = JobEvent.CANCEL_HANDLER_FAILED if fault else JobEvent.CANCEL_HANDLER_ENDED
    return _Settled(wait_transitions.cancel_handled(row, fault, order, now), event)


def _errored(execution: Execution, result: Errored, now: int) -> _Settled:
    if execution.only_decides:  # its retry handler could not be asked
        return _Settled(transitions.gave_up(execution.row, result.fault, now), JobEvent.GAVE_UP)
    return _Settled(transitions.errored(execution.row, result.fault, result.exitcode, now), JobEvent.ERROR)


def _decided(execution: Execution, result: Decided, order: Order, now: int) -> _Settled:
    errored = execution.row
    if not execution.only_decides:
        errored = transitions.errored(errored, result.fault, result.exitcode, now)
    copy = transitions.edited(errored, result.edits) if result.edits else errored
    if result.again:
        return _Settled(transitions.retried(copy, result.again, order, now), JobEvent.AGAIN, errored)
    event = JobEvent.LIFETIME_OVER if _outlived(execution, now) else JobEvent.GAVE_UP
    return _Settled(transitions.gave_up(copy, result.fault, now), event, errored)


def _crashed(execution: Execution, result: Crashed, order: Order, now: int) -> _Settled:
    """A crash is an error like any other. Of the handler: the retry handler decides. Of the answer handler: it is
    called again. Of other code: it is called again, too, but not for ever."""
    row = execution.row
    if not result.own:
        return _Settled(transitions.suspected(row, result.fault, now), JobEvent.CRASHED)
    if row.phase == CANCELLING and row.crashes_counted + 1 >= transitions.CRASHES_ALLOWED:
        return _cancel_handled(row, result.fault, order, now)
    if execution.only_decides or row.phase == CANCELLING:
        after = transitions.crashed_aside(row, result.fault, now)
    elif row.phase == ANSWERED:
        after = wait_transitions.crashed(row, result.fault, result.exitcode, now, _has_retry_handler(execution))
    else:
        after = transitions.crashed(row, result.fault, result.exitcode, now, _has_retry_handler(execution))
    return _Settled(after, JobEvent.GAVE_UP if after.state == FINAL else JobEvent.CRASHED)


def _has_retry_handler(execution: Execution) -> bool:
    """Whether some code decides about an error of this job. If this program has none, another may: one in which the
    job's strategy is registered, or a newer one that can read what is stored."""
    try:
        return execution.spec.retry_of(execution.row) is not None
    except (NotRegistered, msgspec.DecodeError):
        return True


def _seeking(execution: Execution, failed: Row, after: Row, event: str) -> Row | None:
    """The row with which a failed job looks for an answer that may have come before the failure; None if it does not
    look: the failure is the job's end if the job had an answer already, or if its lifetime is over."""
    if after.state == FINAL and (execution.row.phase != EXECUTING or event == JobEvent.LIFETIME_OVER):
        return None
    return _agreed(failed, execution.spec)


def _agreed(row: Row, spec: Spec) -> Row:
    return wait_transitions.agreed(row, spec.fence, spec.cancelled is not None)


def overran(execution: Execution) -> RunResult:
    """The result of an execution whose code ran for longer than it may."""

    def fault(code: str) -> Fault:
        return timeout(f"its {code} ran longer than {execution.limit / 1e6:g} s")

    if execution.only_decides or (execution.answer and execution.answer.error):
        return Decided(fault("retry handler"), 504)
    if execution.row.phase == ANSWERED:
        return AnswerHandlerFailed(fault("answer handler"))
    if execution.row.phase == CANCELLING:
        return CancelHandled(fault("cancel handler"))
    return Errored(fault("handler"), 504)


def save_apart(store: Store, engine_id: int, changes: list[Change], now: int) -> tuple[list[Change], Turned, set[int]]:
    """Save changes so that one bad row does not fail the others. Changes that add no jobs are saved together, the
    others one by one. A change that the store will never take ends its job as an error; one that somebody else's
    transaction blocks is handed back.

    Returns the changes that were made, what became of them, and the ids of those that must wait.
    """
    saved: list[Change] = []
    turns: list[Turned] = []
    blocked: set[int] = set()
    todo = _together_or_alone(changes, store.changes_at_once)
    while todo:
        some = todo.pop(0)
        try:
            turns.append(store.turn(engine_id, some, [], now))
            saved += some
        except KeyTaken as error:
            taken = error.holders
            todo.insert(0, [key_taken(one, taken[i], now) if (i := one.before.id) in taken else one for one in some])
        except StoreRefused as error:
            if some[0].event == JobEvent.UNSTORABLE and len(some) == 1:
                raise
            todo[:0] = [[one] if len(some) > 1 else [unstorable(one, str(error), now)] for one in some]
        except StoreBusy:
            blocked.update(change.before.id for more in (some, *todo) for change in more)
            break  # each further try may cost a second more
    return saved, _together(turns), blocked


def _together_or_alone(changes: list[Change], at_once: int) -> list[list[Change]]:
    alone = [[change] for change in changes if change.children]
    plain = [change for change in changes if not change.children]
    return [plain[start : start + at_once] for start in range(0, len(plain), at_once)] + alone


def _together(turns: Sequence[Turned]) -> Turned:
    """The sum of several turns that claimed nothing."""
    return Turned(
        frozenset(job_id for turned in turns for job_id in turned.lost),
        [],
        [child for turned in turns for child in turned.children],
        answered={job_id: row for turned in turns for job_id, row in turned.answered.items()},
        placed=[one for turned in turns for one in turned.placed],
    )


def key_taken(change: Change, holder: int, now: int) -> Change:
    """The job wants to wait under a key that another live job has: an error, for its retry handler."""
    row, key = change.before, change.after.wait_key
    fault = Fault(
        FaultKind.ERROR,
        f"another live {row.job_type} job (id {holder}) has the key {key!r}, under which it wanted to wait",
    )
    errored = _one_write(row, transitions.errored(row, fault, 500, now))
    seeking = replace(errored, wait=change.after.wait)  # it has the rules for answers to this wait
    return Change(row, errored, (), JobEvent.ERROR, change.answer, seeking)


def unstorable(change: Change, reason: str, now: int) -> Change:
    """The store will never take this outcome: the job ends with an error that says so."""
    row = change.before
    fault = Fault(FaultKind.ERROR, clean(f"its outcome could not be stored: {reason}"))
    if row.state in (INITIAL, RETRY):  # no code ran: only its place in the queue was to change
        return Change(row, transitions.rejected(row, fault.message, now), (), JobEvent.UNSTORABLE)
    errored = transitions.errored(row, fault, 500, now) if row.state != ERROR else row
    return Change(row, _one_write(row, transitions.gave_up(errored, fault, now)), (), JobEvent.UNSTORABLE)


def _one_write(before: Row, after: Row) -> Row:
    """A row that several transitions changed is one write, and gets one new token."""
    return after if after.token == before.token + 1 else replace(after, token=before.token + 1)


def _life(execution: Execution) -> int:
    """When the job's lifetime is over; 0 = never."""
    return later(execution.row.create_time, execution.spec.lifetime) if execution.spec.lifetime else 0


def _outlived(execution: Execution, now: int) -> bool:
    return 0 < _life(execution) <= now
