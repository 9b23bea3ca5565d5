"""Jobs for the suite: new ones, and ones taken to a given place by the moves that lead there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from hipq.job import transitions, wait_transitions
from hipq.job.answer import NewAnswer
from hipq.job.fault import Fault
from hipq.job.model import Change, New, Row
from hipq.job.order import ByTime
from hipq.job.run_result import Rerun
from hipq.job.states import READY, SCHEDULED
from hipq.job.units import counted
from hipq.job.waiting import Waiting
from hipq.job.when import SECOND
from hipq.stores.claims import Claim
from hipq.stores.filters import Filter
from hipq.stores.protocols import Store
from hipq.testing.clock import START

NOW: Final = START
LATER: Final = NOW + 3600 * SECOND
ORDER: Final = ByTime()
TYPE: Final = "charge"
FAULT: Final = Fault(
    "error", "the bank is closed: ünïcödé 🏦", "BankClosed", ("BankClosed", "Exception"), "Traceback …"
)


def ranked(number: int) -> str:
    """A rank; they sort as their numbers do, small ones before those of jobs that are due NOW."""
    return f"{number:020x}" if number >= 0 else f"!{number + (1 << 80):020x}"


def new(queue: int, key: str = "", **more: Any) -> New:
    """A job of type `charge` that is due now. With a time after NOW it is scheduled. Its `rank` may be a
    number; `throttle_factor` is as users give it."""
    at = more.setdefault("scheduled_run_time", NOW)
    more.setdefault("job_type", TYPE)
    more.setdefault("job_data", '{"amount":5}')
    more.setdefault("phase", SCHEDULED if at > NOW else READY)
    more.setdefault("rank", ORDER.rank(at, more.get("priority", 100)))
    if "throttle_factor" in more:
        more["throttle_factor"] = counted(more["throttle_factor"])
    if isinstance(more["rank"], int):
        more["rank"] = ranked(more["rank"])
    more.setdefault("create_time", NOW)
    more.setdefault("meta", '{"then":"next"}')  # which goes wherever its row goes
    return New(queue=queue, job_key=key, **more)


def add(store: Store, jobs: Iterable[New]) -> list[int]:
    """Store jobs none of which is a duplicate; their ids."""
    stored = store.enqueue(list(jobs))
    assert not any(one.duplicate for one in stored)
    return [one.id for one in stored]


def add_one(store: Store, job: New) -> int:
    (job_id,) = add(store, [job])
    return job_id


def row_of(store: Store, job_id: int) -> Row:
    row = store.get(job_id)
    assert row is not None, f"job {job_id} is not in the store"
    return row


def claim(
    store: Store, engine_id: int, queue: int, *, types: Sequence[str] = (TYPE,), limit: int = 100, now: int = NOW
) -> list[Row]:
    turned = store.turn(engine_id, [], [Claim(queue, tuple(types), limit)], now)
    assert turned.lost == frozenset()
    return turned.won


def save(store: Store, before: Row, after: Row, *, engine_id: int = 0) -> Row:
    """Write one change that must be taken; the row after it."""
    turned = store.turn(engine_id, [Change(before, after)], [], after.update_time)
    assert turned.lost == frozenset()
    return after


def waits(row: Row, deadline: int, now: int, direct: bool = False, key: str = "") -> Row:
    """It waits for its answer until then. `direct`: that will be its result."""
    return wait_transitions.waits(row, Waiting(until=deadline, direct=direct), now, key)


def answer(queue: int, key: str, **more: Any) -> NewAnswer:
    """An answer that comes now."""
    more.setdefault("job_type", TYPE)
    more.setdefault("data", '{"status":"paid"}')
    more.setdefault("arrived", NOW)
    times = {"early_until": LATER, "remember_until": LATER, "keep_until": LATER, "early": LATER - NOW}
    return NewAnswer(queue=queue, job_key=key, **{**times, **more})


def finish(store: Store, row: Row, now: int = NOW) -> Row:
    return save(store, row, transitions.succeeded(row, '{"paid":true}', 200, now))


def everything(store: Store, queue: int) -> list[Row]:
    """All jobs of a queue, page by page."""
    rows: list[Row] = []
    while page := store.find(Filter(queue, after=rows[-1].id if rows else 0, limit=1000)):
        rows += page
    return rows


def bring(store: Store, engine_id: int, queue: int, place: str, **more: Any) -> Row:
    """A job in one of PLACES, as the store has it."""
    if place == "initial scheduled":
        more.setdefault("scheduled_run_time", LATER)
    job = new(queue, **more)
    job_id = add_one(store, job)
    if place.startswith("initial"):
        return row_of(store, job_id)
    (row,) = claim(store, engine_id, queue, types=[job.job_type], limit=1)
    assert row.id == job_id
    if place in ("waiting", "waiting directly", "answered", "being looked at", "cancelling"):
        row = save(store, row, waits(row, LATER, NOW, direct=place == "waiting directly"))
    if place in ("answered", "being looked at"):
        (delivered,) = store.answer([answer(queue, row.job_key, job_type=row.job_type, tenant=row.tenant)], NOW)
        assert delivered.change
        row = delivered.change.after
    if place == "being looked at":
        (row,) = claim(store, engine_id, queue, types=[job.job_type], limit=1)
    if place == "cancelling":
        row = save(store, row, wait_transitions.cancelling(row, FAULT, NOW))
    if place == "retry ready":
        return save(store, row, transitions.given_back(row, "shutting down", True, NOW))
    if place in ("deciding", "being decided", "retry scheduled"):
        row = save(store, row, transitions.errored(row, FAULT, 500, NOW))
    if place == "being decided":
        (row,) = claim(store, engine_id, queue, types=[job.job_type], limit=1)
    if place == "retry scheduled":
        row = save(store, row, transitions.retried(row, Rerun(FAULT, delay=60.0), ORDER, NOW))
    return row


PLACES: Final = (
    "initial ready", "initial scheduled", "executing", "waiting", "answered", "being looked at", "cancelling",
    "deciding", "being decided", "retry ready", "retry scheduled",
)  # fmt: skip
