"""Claims while somebody's snapshot is held open: what was finished since cannot be removed from any index."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.crowd import DUE, crowd, plain
from bench.lines import Bench, Line
from bench.stopping import Counted, claim_times, unsynced
from hipq import Hipq

TARGET = 2.0
WANTED = 100
ROUNDS = 40
WARM_UP = 10


def lines(bench: Bench, jobs: int = 200_000) -> Iterator[Line]:
    """PostgreSQL only. Claimed by one who claimed before, and by one that comes new to the queue; the jobs in between
    are run by a third."""
    counted = Counted(bench.app, "snapshot")
    crowd(bench.app, counted.queue, DUE, jobs + 3 * ROUNDS * WANTED + 2_000)
    with unsynced(bench.app) as app, unsynced(bench.app) as another:
        before = _median(app, counted)
        with held_open(bench.app.url):
            counted.run(jobs)
            after, fresh = _median(app, counted), _median(another, counted)
    with plain(bench.app) as database:
        assert database.count(counted.queue, final=True) == counted.worked + 3 * ROUNDS * WANTED
    name = f"claim {WANTED}, a snapshot open for {jobs:,} jobs"
    yield Line(name, after, before, TARGET, "ms", "before")
    yield Line(f"{name}, new here", fresh, before, TARGET, "ms", "before")
    bench.app.store.drop_queue(counted.queue.number)


@contextmanager
def held_open(url: str) -> Iterator[None]:
    """A transaction elsewhere that has looked at the database and goes on doing nothing."""
    with psycopg.connect(url) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute("SELECT count(*) FROM hipq_queues")
        yield
        conn.rollback()


def _median(app: Hipq, counted: Counted) -> float:
    return statistics.median(claim_times(app, counted.queue.number, ROUNDS, WANTED)[WARM_UP:])
