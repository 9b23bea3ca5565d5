"""The table is the machine: moves, CHECKs and moves.py all agree with it."""

from __future__ import annotations

from itertools import product

import pytest

from hipq.job.states import FINAL, PHASES, TRANSITIONS, IllegalTransition, check, follow, reachable

AS_DESIGNED = {
    "initial": {"running"},
    "running": {"error", "final"},
    "error": {"retry", "final"},
    "retry": {"running"},
    "final": set(),
}


def test_the_table_is_the_machine_that_was_designed() -> None:
    assert {state: set(moves) for state, moves in TRANSITIONS.items()} == AS_DESIGNED


@pytest.mark.parametrize(("before", "after"), list(product(TRANSITIONS, TRANSITIONS)))
def test_a_walk_takes_legal_steps_only(before: str, after: str) -> None:
    if after in AS_DESIGNED[before]:
        assert follow(before, after) == after
    else:
        with pytest.raises(IllegalTransition, match=f"{before} -> {after}"):
            follow(before, after)


def test_nothing_is_reachable_from_final_and_final_from_everything_else() -> None:
    assert not any(reachable(FINAL, state) for state in TRANSITIONS)
    assert all(reachable(state, FINAL) for state in TRANSITIONS if state != FINAL)


def test_every_phase_belongs_to_the_states_of_its_table() -> None:
    assert set(PHASES) == set(TRANSITIONS)
    assert "state = 'final'" in check("final")
    assert "state = 'final'" not in check("live")
