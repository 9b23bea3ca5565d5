"""A SQLite file with jobs wherever jobs can be, and an empty database of each server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from hipq.job.activity import DAY, Activity
from hipq.job.model import Row
from hipq.job.schedule import Definition, ScheduleChange, Settings
from hipq.job.ticks import begun
from hipq.job.when import SECOND
from hipq.limits.limit import limit
from hipq.stores.filters import AnswerFilter
from hipq.stores.open import open_store
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests import processes
from tests.contract.jobs import NOW, PLACES, add, answer, bring, everything, finish, new
from tests.databases import STORES, clean


class Contents(NamedTuple):
    """All that a database has."""

    queues: list[QueueTables]
    jobs: list[Row]
    answers: list[object]
    rules: list[object]
    schedules: list[object]
    activity: list[list[Activity]]


def contents(store: Store) -> Contents:
    queues = store.queues()
    return Contents(
        queues,
        [row for queue in queues for row in everything(store, queue.number)],
        list(store.answers(AnswerFilter(limit=10_000))),
        [store.limits(queue.number)[:3] for queue in queues],
        [(store.schedules(queue.number), store.peek([(queue.number, ())])[0].crons) for queue in queues],
        [store.activity([queue.number], DAY, NOW - DAY * SECOND, NOW + 1, "job_type") for queue in queues],
    )


@pytest.fixture(params=STORES[1:])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with clean(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def source(path: Path) -> str:
    """Jobs in every place; those that an engine had are a dead engine's."""
    url = f"sqlite:///{path}"
    with closing(open_store(url)) as store:
        for name in ("orders", "mails", "empty"):
            store.queue("shop", name, f"shop_{name}")
        dropped = store.queue("shop", "gone", "shop_gone").number
        store.drop_queue(dropped)
        orders, mails, _ = (queue.number for queue in store.queues())
        engine_id = store.take_lease(3600, "dead soon")
        for queue in (orders, mails):
            for place in PLACES:
                bring(store, engine_id, queue, place, job_type=place.replace(" ", "_"), lane="east", timeout=0.1 + 0.2)
            finish(store, bring(store, engine_id, queue, "executing", job_data='"' + "ü" * 20_000 + '"'))
            bring(store, engine_id, queue, "waiting", job_data='"' + "🏦" * 20_000 + '"', job_type="large")
        add(store, [new(mails, f"key {n}", priority=n) for n in range(2_500)])
        store.answer([replace(answer(orders, f"early {n}"), answer_id=f"id {n}") for n in range(20)], NOW)
        store.change_rules(orders, lambda rules: replace(rules, changed=(limit(7),), paused_lanes=("west",)))
        nightly = Definition(Settings("0 0 * * *"), Settings(tz="Europe/Rome"))
        store.change_schedules(orders, [ScheduleChange(None, begun("nightly", "charge", nightly, NOW))])
        store.renew_lease(engine_id, 0)
    return url


def killed(source: str, target: str, point: str) -> int:
    """Run a move that dies at a point; its exit status."""
    command = [sys.executable, "-m", "tests.move.mover", source, target, point]
    return processes.run(command, check=False, timeout=120, capture_output=True).returncode
