"""Step 5, settle: how a run ended becomes the one write that saves it."""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec.structs import replace

from hipq.engine.launch import Execution
from hipq.errors import KeyTaken, StoreBusy, StoreRefused
from hipq.job import transitions, wait_transitions, waiting
from hipq.job.fault import Fault, clean, timeout
from hipq.job.matching import Placed
from hipq.job.model import Change, New, Row, remember
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
from hipq.job.when import later
from hipq.stores.base import Store, Stored, Turned

KEEPS_ITS_ANSWER = (AnswerHandlerFailed, Crashed, GivenBack)
"""Endings after which a job has its answer still before it, if it neither ended nor failed."""


def settle(running: Execution, order: Order, now: int) -> Change:
    """The change that saves a stopped job: through its retry handler's verdict, onto a copy, never back into memory."""
    row, ending = running.row, running.ending
    assert ending is not None
    errored: Row | None = None
    """As it is with its failure, before what follows from that."""
    match ending:
        case Succeeded():
            after, event = transitions.succeeded(row, ending.result, ending.exitcode, now), "ok"
        case FailedRun():
            after, event = transitions.refused(row, ending.fault, ending.exitcode, now), "failed"
        case Rerun() if _outlived(running, now):
            after, event = transitions.outlived(row, ending.fault, ending.exitcode, now), "lifetime over"
        case Rerun():
            after, event = transitions.asked_again(row, ending, order, now), "again"
        case Waits():
            latest = row.deadline if row.phase == EXECUTING else waiting.load(row.wait).until
            wait = waiting.begun(ending, latest, waiting.since(row), _life(running), running.spec.answered is None, now)
            after, event = wait_transitions.waits(row, wait, now, ending.key), "waits"
        case Progressed():
            after, event = wait_transitions.progressed(row, ending.extend, now), "progress"
        case AnswerHandlerFailed() if _outlived(running, now):
            after, event = transitions.outlived(row, ending.fault, 500, now), "lifetime over"
        case AnswerHandlerFailed():
            after, event = wait_transitions.unread(row, ending.fault, now), "answer failed"
        case CancelHandled():
            after = wait_transitions.cancel_handled(row, ending.fault, order, now)
            event = "cancel handler failed" if ending.fault else "cancel handler ended"
        case Errored() if running.only_decides:  # its retry handler could not be asked
            after, event = transitions.gave_up(row, ending.fault, now), "gave up"
        case Errored():
            after, event = transitions.errored(row, ending.fault, ending.exitcode, now), "error"
        case Decided():
            errored = row if running.only_decides else transitions.errored(row, ending.fault, ending.exitcode, now)
            copy = transitions.edited(errored, ending.edits) if ending.edits else errored
            if ending.again:
                after, event = transitions.retried(copy, ending.again, order, now), "again"
            elif _outlived(running, now):
                after, event = transitions.gave_up(copy, ending.fault, now), "lifetime over"
            else:
                after, event = transitions.gave_up(copy, ending.fault, now), "gave up"
        case Crashed() if row.phase == CANCELLING and row.crashes >= transitions.CRASHES_ALLOWED:
            after, event = wait_transitions.cancel_handled(row, ending.fault, order, now), "cancel handler failed"
        case Crashed():
            after = _crashed(running, ending, now)
            event = "gave up" if after.state == FINAL else "crashed"
        case GivenBack():
            after, event = transitions.given_back(row, ending.reason, ending.started, now), "given back"
        case _:
            assert_never(ending)
    if running.note:
        after = replace(after, history=remember(after.history, now, "ran", **running.note))
    if after.state != FINAL and (running.spec.fence or running.spec.cancelled):
        after = _agreed(after, running.spec)
    kept = isinstance(ending, KEEPS_ITS_ANSWER) and after.state == row.state
    used = 0 if running.answer is None or kept else running.answer.id
    seeking = _seeking(running, errored, after, event)
    return Change(row, _one_write(row, after), tuple(running.children), event, used, seeking)


def _crashed(running: Execution, ending: Crashed, now: int) -> Row:
    """A crash is an error like any other: of the handler, for the retry handler; of the answer handler, after which it
    is called again. What else crashed is called again, too, and not for ever."""
    row, judged = running.row, _is_judged(running)
    if running.only_decides or row.phase == CANCELLING:
        return transitions.crashed_aside(row, ending.fault, now)
    if row.phase == ANSWERED:
        return wait_transitions.crashed(row, ending.fault, ending.exitcode, now, judged)
    if not ending.own:
        return transitions.suspected(row, ending.fault, now)
    return transitions.crashed(row, ending.fault, ending.exitcode, now, judged)


def _is_judged(running: Execution) -> bool:
    """Whether anything decides about an error of this job: if not this program, then one that has its strategy, or can
    read what a newer program has stored."""
    try:
        return running.spec.retry_of(running.row) is not None
    except (NotRegistered, msgspec.DecodeError):
        return True


def _seeking(running: Execution, errored: Row | None, after: Row, event: str) -> Row | None:
    """As what it looks for an answer that may have come before it failed. That is its end all the same if it had an
    answer already, or its lifetime is over."""
    if after.state == FINAL and (running.row.phase != EXECUTING or event == "lifetime over"):
        return None
    row = errored or after
    return _agreed(row, running.spec) if row.state in (ERROR, RETRY) else None


def _agreed(row: Row, spec: Spec) -> Row:
    return wait_transitions.agreed(row, spec.fence, spec.cancelled is not None)


def overran(running: Execution) -> RunResult:
    """How it ends if its code takes longer than it may."""

    def fault(code: str) -> Fault:
        return timeout(f"its {code} ran longer than {running.limit / 1e6:g} s")

    if running.only_decides or (running.answer and running.answer.error):
        return Decided(fault("retry handler"), 504)
    if running.row.phase == ANSWERED:
        return AnswerHandlerFailed(fault("answer handler"))
    if running.row.phase == CANCELLING:
        return CancelHandled(fault("cancel handler"))
    return Errored(fault("handler"), 504)


def save_apart(store: Store, engine_id: int, changes: list[Change], now: int) -> tuple[list[Change], Turned, set[int]]:
    """One bad row must not fail its neighbours. Those that add no jobs are saved together, the others one by one.

    What the store will never take ends as an error; what somebody else's transaction holds up is handed back. Returns
    the changes that were made, what became of them, and the ids of those that must wait.
    """
    saved: list[Change] = []
    blocked: set[int] = set()
    lost: set[int] = set()
    children: list[tuple[New, Stored]] = []
    answered: dict[int, Row] = {}
    placed: list[Placed] = []
    alone = [[change] for change in changes if change.children]
    plain = [change for change in changes if not change.children]
    step = store.changes_at_once
    todo = [plain[start : start + step] for start in range(0, len(plain), step)] + alone
    while todo:
        some = todo.pop(0)
        try:
            turned = store.turn(engine_id, some, [], now)
        except KeyTaken as error:
            taken = error.holders
            todo.insert(0, [key_taken(one, taken[i], now) if (i := one.before.id) in taken else one for one in some])
            continue
        except StoreRefused as error:
            if len(some) > 1:
                todo[:0] = [[change] for change in some]
            elif some[0].event == "unstorable":
                raise
            else:
                todo.insert(0, [unstorable(some[0], str(error), now)])
            continue
        except StoreBusy:
            blocked.update(change.before.id for more in (some, *todo) for change in more)
            break  # each further try may cost a second more
        saved += some
        lost |= turned.lost
        children += turned.children
        answered |= turned.answered
        placed += turned.placed
    return saved, Turned(frozenset(lost), [], children, answered=answered, placed=placed), blocked


def key_taken(change: Change, holder: int, now: int) -> Change:
    """It wants to wait for its answer under a key that another live job has: an error, for its retry handler."""
    row, key = change.before, change.after.wait_key
    fault = Fault(
        "error", f"another live {row.job_type} job (id {holder}) has the key {key!r}, under which it wanted to wait"
    )
    errored = _one_write(row, transitions.errored(row, fault, 500, now))
    seeking = replace(errored, wait=change.after.wait)  # which says what is agreed for its answers
    return Change(row, errored, (), "error", change.answer, seeking)


def unstorable(change: Change, reason: str, now: int) -> Change:
    """The store will never take this outcome: the job ends with an error that says so."""
    row = change.before
    fault = Fault("error", clean(f"its outcome could not be stored: {reason}"))
    if row.state in (INITIAL, RETRY):  # nothing ran: what was to be changed is its place in the queue
        return Change(row, transitions.rejected(row, fault.message, now), (), "unstorable")
    errored = transitions.errored(row, fault, 500, now) if row.state != ERROR else row
    return Change(row, _one_write(row, transitions.gave_up(errored, fault, now)), (), "unstorable")


def _one_write(before: Row, after: Row) -> Row:
    """Several moves saved at once are one write, so one new token."""
    return after if after.token == before.token + 1 else replace(after, token=before.token + 1)


def _life(running: Execution) -> int:
    """When its lifetime is over; 0 = never."""
    return later(running.row.create_time, running.spec.lifetime) if running.spec.lifetime else 0


def _outlived(running: Execution, now: int) -> bool:
    return 0 < _life(running) <= now
