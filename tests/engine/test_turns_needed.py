"""A drain under a limit takes no more turns than it needs: each saves what ended and claims what that made room for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hipq import Hipq, Job, limit
from hipq.job.model import Change
from hipq.stores.claims import Claim, Turned
from hipq.stores.protocols import Store
from tests.servers import clean_database

JOBS, UNITS = 400, 20


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_hardly_any_turn_of_a_drain_under_a_limit_does_nothing(kind: str, tmp_path: object) -> None:
    """On a busy machine jobs end one by one, and each makes a turn: one drain of a few is left alone."""
    for number in range(5):
        if kind == "sqlite":
            turns = _drained(f"sqlite:///{tmp_path}/limited{number}.db")
        else:
            with clean_database() as url:
                turns = _drained(url)
        assert sum(won for _, won in turns) == JOBS
        useless = [turn for turn in turns if turn == (0, 0)]
        if len(useless) <= len(turns) // 4:
            return
    raise AssertionError(turns)


def _drained(url: str) -> list[tuple[int, int]]:
    app = Hipq("shop", url)
    app.migrate()
    queue = app.queue("orders", limits=[limit(UNITS)])

    @queue.job
    def work(_: Job[None]) -> None: ...

    work.enqueue_many([None] * JOBS)
    turns = _counted(app.store)
    app.run(until_empty=True)
    app.close()
    return turns


def _counted(store: Store) -> list[tuple[int, int]]:
    """Of each turn from now on, how many changes it saved and how many jobs it claimed."""
    turns: list[tuple[int, int]] = []
    turn = store.turn

    def counted(engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        turned = turn(engine_id, changes, claims, now)
        turns.append((len(changes), len(turned.won)))
        return turned

    store.turn = counted  # type: ignore[method-assign]
    return turns
