"""Two transactions of MariaDB that meet where both have read and neither has committed: on one server the second must
have waited for the first; of two nodes of a cluster one must begin again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Any, Final

import pytest

from hipq.job import transitions
from hipq.job.model import Change
from hipq.limits.limit import limit
from hipq.stores.mariadb.rule_claims import MariaReader
from hipq.stores.mariadb.store import MariaStore
from hipq.stores.values import QueueTables
from tests.contract.jobs import LATER, NOW, add, answer, claim, new, row_of, waits
from tests.contract.rules import live, set_rules
from tests.crash.workers import eventually

MEETING_SECONDS: Final = 1.0
"""Whoever is alone for so long goes on: the other waits for its lock. Locks are waited for twice as long."""
ROUNDS: Final = 3


class Meeting:
    """In `of`, whoever has called a method waits until another thread has, too. `met`: how often two were there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
        self.met = 0
        self._barrier = Barrier(2, action=self._meet)
        self._barrier.abort()
        real = getattr(kind, name)

        def method(*given: Any) -> Any:
            found = real(*given)
            with suppress(BrokenBarrierError):
                self._barrier.wait(MEETING_SECONDS)
            return found

        monkeypatch.setattr(kind, name, method)

    def _meet(self) -> None:
        self.met += 1

    def of(self, *acts: Callable[[], object]) -> None:
        """These at the same time. What fails raises."""
        self._barrier.reset()
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(act) for act in acts]:
                done.result(60)
        self._barrier.abort()


def race_at_a_limit(
    monkeypatch: pytest.MonkeyPatch, first: MariaStore, second: MariaStore, queue: QueueTables
) -> Meeting:
    """Two engines, each of types of its own, so that no row is in the way of both. What they hold is never above the
    limit, and the limit is used."""
    set_rules(first, queue.number, [limit(5)])
    second.queues()
    meeting = Meeting(monkeypatch, MariaReader, "held")
    engines = [(store, store.take_lease(600, name), name) for store, name in ((first, "a"), (second, "b"))]
    for _ in range(ROUNDS):
        ids = add(first, [new(queue.number, job_type=name) for name in "ab" for _ in range(5)])
        seen(second, queue, ids[-1])
        meeting.of(
            *(lambda s=store, e=engine, n=name: claim(s, e, queue.number, types=[n]) for store, engine, name in engines)
        )
        rows = live(first, queue.number)
        assert sum(row.held for row in rows) == 5000, [(row.job_type, row.held) for row in rows]
        assert not first.turn(0, [Change(row, transitions.cancelled(row, "", NOW)) for row in rows], [], NOW).lost
    return meeting


def race_of_an_answer(
    monkeypatch: pytest.MonkeyPatch, first: MariaStore, second: MariaStore, queue: QueueTables
) -> Meeting:
    """An answer comes while its job begins to wait: whoever is second finds the other."""
    second.queues()
    engine = first.take_lease(600, "engine")
    meeting = Meeting(monkeypatch, MariaStore, "_lock_keys")
    for number in range(ROUNDS):
        key = f"order-{number}"
        add(first, [new(queue.number, key)])
        row = claim(first, engine, queue.number)[-1]  # answered ones come first
        seen(second, queue, row.id, row.token)
        meeting.of(
            lambda row=row: first.turn(engine, [Change(row, waits(row, LATER, NOW))], [], NOW),  # type: ignore[misc]
            lambda key=key: second.answer([answer(queue.number, key)], NOW),  # type: ignore[misc]
        )
        assert row_of(first, row.id).phase == "answered", "the answer and its job have not found each other"
    return meeting


def seen(store: MariaStore, queue: QueueTables, job_id: int, token: int = 0) -> None:
    """Another node may be behind for a moment."""
    eventually(lambda: (row := store.get(job_id)) and row.token >= token, 10, f"{queue.name} is seen by another node")
