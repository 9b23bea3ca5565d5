"""Counters of what has happened, as charts have them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from hipq.job.activity import ANSWER, BOUNDS, BUCKETS, COUNTERS, HOUR, MINUTE, RUN, Activity, Histogram, series, total
from hipq.job.states import CODES, NONE
from hipq.job.tally import CountedTypes
from hipq.job.when import SECOND

HOURS = HOUR * SECOND


def of(starts: int, **counts: int) -> Activity:
    return Activity(starts, counts=tuple(counts.get(name, 0) for name in COUNTERS))


def test_each_code_has_a_counter() -> None:
    assert set(CODES) - {NONE} <= set(COUNTERS)
    assert len(COUNTERS) == len(set(COUNTERS)) == RUN + 2 * BUCKETS


def test_what_did_not_succeed_failed_unless_it_was_cancelled() -> None:
    one = of(0, started=40, ok=1, failed=2, retry=4, error=8, cancelled=16, retried=32)
    assert (one.started, one.finished, one.failed, one.retried) == (40, 31, 14, 32)
    assert [one.ended(code) for code in CODES[1:]] == [1, 2, 4, 8, 16]


def test_histograms_of_runs_and_answers_do_not_mix() -> None:
    one = of(0, run_0=1, run_17=2, answer_0=4, answer_17=8)
    assert (one.run.buckets[0], one.run.buckets[-1], one.run.total) == (1, 2, 3)
    assert (one.answer.buckets[0], one.answer.buckets[-1], one.answer.total) == (4, 8, 12)
    assert one.counts[RUN] == 1
    assert one.counts[ANSWER] == 4


def test_a_chart_has_all_periods_in_order() -> None:
    rows = [of(5 * HOURS, ok=1), of(3 * HOURS, ok=2), of(3 * HOURS + 60 * SECOND, ok=4)]
    found = series(rows, HOUR, 2 * HOURS + 7, 6 * HOURS)
    assert [(one.starts // HOURS, one.finished) for one in found] == [(2, 0), (3, 6), (4, 0), (5, 1)]
    assert [one.finished for one in series([], MINUTE, 0, 3 * MINUTE * SECOND)] == [0, 0, 0]
    assert total(found).finished == (found[1] + found[3]).finished == 7
    assert (found[1] + found[3]).starts == 3 * HOURS


@pytest.mark.parametrize("seed", range(5))
def test_a_percentile_is_in_the_right_bucket(seed: int) -> None:
    """So it is off by a factor of about three at worst."""
    chance = random.Random(seed)
    took = sorted(chance.lognormvariate(chance.uniform(-5, 8), chance.uniform(0.1, 3)) for _ in range(501))
    edges = [0.0, *BOUNDS, float("inf")]
    found = Histogram(tuple(sum(low <= one < high for one in took) for low, high in pairwise(edges)))
    assert found.total == 501
    for share in (0.5, 0.95, 1.0):
        exact, estimate = took[round(share * 501 - 0.5) if share < 1 else 500], found.percentile(share)
        assert estimate is not None
        if BOUNDS[0] <= exact < BOUNDS[-1]:
            assert exact / 3.4 <= estimate <= exact * 3.4


def test_percentiles_at_the_ends() -> None:
    assert Histogram((0,) * BUCKETS).percentile(0.5) is None
    first, last = of(0, run_0=3).run, of(0, run_17=3).run
    assert 0 < (first.percentile(0.5) or 0) <= BOUNDS[0]
    assert last.percentile(0.5) == BOUNDS[-1]


def test_types_are_counted_apart_up_to_so_many_in_an_hour() -> None:
    types = CountedTypes(2)
    assert [types.name(1, 5 * HOURS, name) for name in "abcba"] == ["a", "b", "", "b", "a"]
    assert types.name(2, 5 * HOURS, "c") == "c"
    assert types.name(1, 4 * HOURS, "c") == ""  # a run that began before: no new hour
    assert [types.name(1, 6 * HOURS, name) for name in "cda"] == ["c", "d", ""]
