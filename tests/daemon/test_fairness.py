"""A tenant with very many jobs does not keep another's single job waiting: not for more than one batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hipq import Hipq
from hipq.daemon import job_factory
from hipq.daemon.scheduler import FairShare
from hipq.engine.lanes import BATCH, KNOWN, Round
from hipq.engine.lanes import LANES as LOOKED_AT
from hipq.job.model import Change, Row
from hipq.job.transitions import succeeded
from hipq.stores.protocols import Store
from tests.databases import fresh

pytestmark = pytest.mark.every_store

LANES = 300
"""More than one look shows;"""
MANY = 5_000
"""and more than are remembered."""


@pytest.fixture
def app(store_kind: str, tmp_path: Path) -> Iterator[Hipq]:
    with fresh(store_kind, tmp_path / "daemon.db") as url, closing(Hipq("daemon", url)) as app:
        app.queue("jobs")
        app.migrate()
        yield app


class Engine:
    """Claims by the scheduler, a turn at a time, and finishes what it claimed."""

    def __init__(self, store: Store, queue: int) -> None:
        self._store = store
        self._scheduler = FairShare()
        self.round = Round(store, queue, self._scheduler)
        self._engine_id = store.take_lease(3600, "test")
        self.slowest = 0.0

    def turn(self, room: int) -> list[Row]:
        began = time.perf_counter()
        self.round.stale()  # as if something came in all the time
        claims = self.round.claims(room, room)
        now = self._store.now()
        won = self._store.turn(self._engine_id, [], claims, now).won
        self.slowest = max(self.slowest, time.perf_counter() - began)
        for claim in claims:
            self.round.claimed(claim, sum(row.lane == claim.lane for row in won))
        for row in won:
            self._scheduler.jobs_started(row.lane, 1)
        self._store.turn(self._engine_id, [Change(row, succeeded(row, "null", 200, now)) for row in won], [], now)
        for row in won:
            self._scheduler.jobs_stopped(row.lane, 1)
        return won


def fill(store: Store, queue: int, count: int, types: int) -> None:
    step = 10_000
    for start in range(0, count, step):
        some = range(start, min(start + step, count))
        now = store.now()
        store.enqueue([job_factory.job(queue, "hog", f"type{n % types}", b"x", job_factory.PLAIN, now) for n in some])


@pytest.mark.parametrize(
    "count", [pytest.param(3_000, id="few"), pytest.param(1_000_000, marks=pytest.mark.long, id="million")]
)
@pytest.mark.parametrize(("types", "noticed"), [(1, False), (LANES, True), (LANES, False), (MANY, False)])
def test_a_single_job_waits_for_no_more_than_one_batch(app: Hipq, count: int, types: int, noticed: bool) -> None:
    """The daemon that takes a job in notices its lane; others meet its tenant at their next look, however many types
    another has: also when they know more of those than they remember."""
    store, queue = app.store, app.queues[0].number
    fill(store, queue, max(count, types), types)
    engine = Engine(store, queue)
    for _ in range(5 if types < MANY else KNOWN // LOOKED_AT + 2):
        assert {row.tenant for row in engine.turn(BATCH)} == {"hog"}
    store.enqueue([job_factory.job(queue, "single", "job", b"x", job_factory.PLAIN, store.now())])
    if noticed:
        engine.round.notice("job", "single/job")
    waited = 0
    for _ in range(20):
        won = engine.turn(BATCH)
        tenants = [row.tenant for row in won]
        if "single" in tenants:
            break
        waited += len(won)
    else:
        pytest.fail("it never came")
    assert waited <= BATCH


def test_tenants_get_their_shares_whatever_they_have(app: Hipq) -> None:
    store, queue = app.store, app.queues[0].number
    fill(store, queue, 3_000, 60)
    now = store.now()
    store.enqueue([job_factory.job(queue, "small", "one", b"x", job_factory.PLAIN, now) for _ in range(600)])
    engine = Engine(store, queue)
    found = [row.tenant for _ in range(20) for row in engine.turn(20)]
    assert len(found) == 400
    assert 160 <= found.count("small") <= 240
