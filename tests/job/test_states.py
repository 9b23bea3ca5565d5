"""The table is the machine: moves, CHECKs and moves.py all agree with it."""

from __future__ import annotations

from itertools import product

import pytest

from hipq.job.states import FINAL, MOVES, PHASES, IllegalMove, check, follow, reachable

SEED_004 = {
    "initial": {"running"},
    "running": {"error", "final"},
    "error": {"retry", "final"},
    "retry": {"running"},
    "final": set(),
}


def test_the_table_is_seed_004s_machine() -> None:
    assert {state: set(moves) for state, moves in MOVES.items()} == SEED_004


@pytest.mark.parametrize(("before", "after"), list(product(MOVES, MOVES)))
def test_a_walk_takes_legal_steps_only(before: str, after: str) -> None:
    if after in SEED_004[before]:
        assert follow(before, after) == after
    else:
        with pytest.raises(IllegalMove, match=f"{before} -> {after}"):
            follow(before, after)


def test_nothing_is_reachable_from_final_and_final_from_everything_else() -> None:
    assert not any(reachable(FINAL, state) for state in MOVES)
    assert all(reachable(state, FINAL) for state in MOVES if state != FINAL)


def test_every_phase_belongs_to_the_states_of_its_table() -> None:
    assert set(PHASES) == set(MOVES)
    assert "state = 'final'" in check("final")
    assert "state = 'final'" not in check("live")
