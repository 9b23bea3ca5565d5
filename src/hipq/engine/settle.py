"""Step 5, settle: how a run ended becomes the one write that saves it."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from hipq.engine.launch import Running
from hipq.errors import StoreBusy, StoreRefused
from hipq.job import moves
from hipq.job.ending import Again, Crashed, Errored, GivenBack, Judged, Refused, Succeeded, Waits
from hipq.job.fault import Fault, clean
from hipq.job.model import Change, New, Row
from hipq.job.order import Order
from hipq.job.states import FINAL
from hipq.job.when import later
from hipq.stores.base import Store, Stored, Turned


def settle(running: Running, order: Order, now: int) -> Change:
    """The change that saves a stopped job: through its retry handler's verdict, onto a copy, never back into memory."""
    row, ending = running.row, running.ending
    assert ending is not None
    match ending:
        case Succeeded():
            after, event = moves.succeeded(row, ending.result, ending.exitcode, now), "ok"
        case Refused():
            after, event = moves.refused(row, ending.fault, ending.exitcode, now), "failed"
        case Again() if _outlived(running, now):
            after, event = moves.outlived(row, ending.fault, ending.exitcode, now), "lifetime over"
        case Again():
            after, event = moves.asked_again(row, ending, order, now), "again"
        case Waits():
            deadline = later(now, ending.timeout) if ending.timeout else row.deadline
            after, event = moves.waits(row, deadline, now), "waits"
        case Errored():
            after, event = moves.errored(row, ending.fault, ending.exitcode, now), "error"
        case Judged():
            errored = row if running.judges else moves.errored(row, ending.fault, ending.exitcode, now)
            if ending.again:
                after, event = moves.retried(errored, ending.again, order, now), "again"
            else:
                after = moves.gave_up(errored, ending.fault, now)
                event = "lifetime over" if _outlived(running, now) else "gave up"
        case Crashed():
            after = moves.crashed(row, ending.fault, now)
            event = "gave up" if after.state == FINAL else "crashed"
        case GivenBack():
            after, event = moves.given_back(row, ending.reason, ending.started, now), "given back"
        case _:
            assert_never(ending)
    return Change(row, _one_write(row, after), tuple(running.children), event)


def save_apart(store: Store, sysid: int, changes: list[Change], now: int) -> tuple[list[Change], Turned, set[int]]:
    """One bad row must not fail its neighbours. Those that add no jobs are saved together, the others one by one.

    What the store will never take ends as an error; what somebody else's transaction holds up is handed back. Returns
    the changes that were made, what became of them, and the ids of those that must wait.
    """
    saved: list[Change] = []
    blocked: set[int] = set()
    lost: set[int] = set()
    children: list[tuple[New, Stored]] = []
    alone = [[change] for change in changes if change.children]
    plain = [change for change in changes if not change.children]
    todo = [plain, *alone] if plain else alone
    while todo:
        some = todo.pop(0)
        try:
            turned = store.turn(sysid, some, [], now)
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
    return saved, Turned(frozenset(lost), [], children), blocked


def unstorable(change: Change, reason: str, now: int) -> Change:
    """The store will never take this outcome: the job ends with an error that says so."""
    row = change.before
    fault = Fault("error", clean(f"its outcome could not be stored: {reason}"))
    errored = moves.errored(row, fault, 500, now) if row.state != "error" else row
    return Change(row, _one_write(row, moves.gave_up(errored, fault, now)), (), "unstorable")


def _one_write(before: Row, after: Row) -> Row:
    """Several moves saved at once are one write, so one new token."""
    return replace(after, token=before.token + 1)


def _outlived(running: Running, now: int) -> bool:
    lifetime = running.spec.lifetime
    return bool(lifetime) and now >= later(running.row.create_time, lifetime)
