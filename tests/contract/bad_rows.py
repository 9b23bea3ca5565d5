"""Rows no database can keep: refused as such, and nothing of their batch is stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from msgspec.structs import replace

from hipq.errors import StoreRefused
from hipq.job import transitions
from hipq.job.model import Change
from hipq.stores.claims import Claim
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.jobs import NOW, TYPE, add, claim, everything, new, waits

NUL: Final = "a\x00b"
SURROGATE: Final = "a\ud800b"
HUGE: Final = 1 << 63

NEW: Final[list[dict[str, Any]]] = [
    *[
        {field: text}
        for field in ("job_type", "job_key", "job_data", "tenant", "lane", "meta", "rank")
        for text in (NUL, SURROGATE)
    ],
    {"job_data": '"' + "x" * 20_000 + "\x00" + '"'},
    {"job_data": '"' + "x" * 20_000 + "\ud800" + '"'},
    *[{field: HUGE} for field in ("priority", "throttle_factor", "scheduled_run_time", "create_time")],
    {"throttle_factor": 0},
    {"phase": "executing"},
]
CHANGED: Final[list[dict[str, Any]]] = [
    *[{field: text} for field in ("error", "result", "history") for text in (NUL, SURROGATE)],
    *[{field: HUGE} for field in ("exitcode", "failures", "crashes", "update_time")],
    {"code": "nonsense"},
    {"attempt": -1},
]


def refused(act: Callable[[], object], fields: dict[str, Any]) -> None:
    try:
        act()
    except StoreRefused:
        return
    pytest.fail(f"it took {fields!a:.60}")


class TestBadRows:
    def test_a_new_job_that_cannot_be_kept_is_refused_with_its_batch(self, store: Store, queue: QueueTables) -> None:
        for fields in NEW:
            bad = replace(new(queue.number, "bad"), **fields)
            for batch in ([bad], [*[new(queue.number)] * 5, bad, new(queue.number, "last")]):
                refused(partial(store.enqueue, batch), fields)
                assert everything(store, queue.number) == [], ascii(fields)
        add(store, [new(queue.number, "next")])

    @pytest.mark.parametrize("first", [0, 1])
    def test_a_bad_job_in_one_queue_stores_nothing_in_another(
        self, store: Store, queue: QueueTables, queue2: QueueTables, first: int
    ) -> None:
        bad, good = (queue, queue2) if first else (queue2, queue)
        with pytest.raises(StoreRefused):
            store.enqueue([new(good.number, "a"), new(bad.number, priority=HUGE), new(good.number, "b")])
        assert everything(store, good.number) == everything(store, bad.number) == []

    @pytest.mark.parametrize("stays", [False, True], ids=["final", "live"])
    def test_a_change_that_cannot_be_kept_is_refused_with_its_turn(
        self, store: Store, engine: int, queue: QueueTables, stays: bool
    ) -> None:
        add(store, [new(queue.number)] * 5)
        rows = claim(store, engine, queue.number, limit=3)
        before = everything(store, queue.number)
        good = [
            Change(row, waits(row, NOW, NOW) if stays else transitions.succeeded(row, "null", 200, NOW)) for row in rows
        ]
        for fields in CHANGED:
            bad = Change(rows[1], replace(good[1].after, **fields), (new(queue.number, "child"),))
            changes = [good[0], bad, good[2]]
            refused(partial(store.turn, engine, changes, [Claim(queue.number, (TYPE,), 10)], NOW), fields)
            assert everything(store, queue.number) == before, ascii(fields)
        assert store.turn(engine, good, [], NOW).lost == frozenset()

    def test_a_child_that_cannot_be_kept_is_refused_with_its_parent(
        self, store: Store, engine: int, queue: QueueTables
    ) -> None:
        add(store, [new(queue.number)])
        (row,) = claim(store, engine, queue.number)
        for fields in ({"job_key": NUL}, {"job_data": SURROGATE}, {"priority": HUGE}):
            child = replace(new(queue.number, "child"), **fields)
            change = Change(row, transitions.succeeded(row, "null", 200, NOW), (child,))
            refused(partial(store.turn, engine, [change], [], NOW), fields)
            assert everything(store, queue.number) == [row], ascii(fields)
