"""How many jobs an engine claims ahead: as its handlers are quick, and not at the expense of its peers."""

from __future__ import annotations

from hipq.engine.prefetch import AHEAD, BATCH, GROWTH, STEADY, Prefetch

HANDS = 10
QUICK, SLOW = ("orders", "quick"), ("orders", "slow")


def test_nothing_is_claimed_ahead_before_anything_was_measured() -> None:
    assert Prefetch(HANDS).room(HANDS) == HANDS


def test_quick_jobs_are_claimed_ahead_as_many_as_were_measured_let_one_expect() -> None:
    prefetch = Prefetch(HANDS)
    prefetch.measure([(QUICK, 100)] * 5)
    assert prefetch.room(HANDS) == HANDS + 5 * GROWTH
    prefetch.measure([(QUICK, 100)] * 1000)
    assert prefetch.room(HANDS) == BATCH
    assert prefetch.room(HANDS - 2 * BATCH) < BATCH


def test_slow_jobs_are_hardly_claimed_ahead() -> None:
    prefetch = Prefetch(HANDS)
    prefetch.measure([(SLOW, round(AHEAD * 1e6))] * 100)
    assert prefetch.room(HANDS) == 2 * HANDS
    prefetch.measure([(SLOW, 10_000_000)] * 100)
    assert prefetch.room(HANDS) == HANDS


def test_quick_jobs_do_not_make_an_engine_take_slow_ones_from_its_peers() -> None:
    prefetch = Prefetch(HANDS)
    prefetch.measure([(QUICK, 100)] * 1000)  # ten times as many as it has hands, before a slow one has ended
    prefetch.claimed([QUICK, SLOW] * HANDS)
    prefetch.outlasts(SLOW, 1_000_000)
    prefetch.claimed([QUICK, SLOW] * STEADY)
    assert prefetch.room(HANDS) <= HANDS + 1
    prefetch.claimed([QUICK] * 20 * STEADY)  # no slow ones any more
    assert prefetch.room(HANDS) == BATCH


def test_a_type_of_the_same_name_in_another_queue_is_another_one() -> None:
    prefetch = Prefetch(HANDS)
    prefetch.measure([(QUICK, 100)] * 1000)
    prefetch.outlasts(("mails", "quick"), 60_000_000)
    prefetch.claimed([QUICK] * STEADY)
    assert prefetch.room(HANDS) == BATCH
