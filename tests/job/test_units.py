"""Numbers of units: what a user gives is kept in whole thousandths, so that sums are exact."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipq import Invalid, limit, per_lane, rate, share
from hipq.job.names import FACTOR_MAX
from hipq.job.units import UNIT, counted, number, thousandths
from hipq.limits.admission import Admission
from hipq.limits.base import LEAST, MOST
from hipq.limits.limit import Limit
from hipq.limits.rules import Rules, checked, load

UNITS = st.integers(1, MOST * UNIT)


@given(UNITS)
def test_every_multiple_of_a_thousandth_comes_back_as_it_was_given(wanted: int) -> None:
    seen = number(wanted)
    assert Fraction(Decimal(repr(seen))) == Fraction(wanted, 1000)
    assert thousandths(seen, "n", LEAST, MOST) == counted(seen) == wanted
    assert isinstance(seen, int) == (wanted % 1000 == 0), "no user sees 2.0"
    assert limit(float(seen)) == limit(seen) == Limit(seen)
    assert load(Rules((limit(seen),)).dump()) == Rules((limit(seen),))


@given(st.floats(LEAST, MOST) | st.decimals(0, 1000, places=4).map(float))
def test_what_is_no_multiple_of_a_thousandth_is_refused(value: float) -> None:
    exact = Fraction(Decimal(repr(value))) * 1000
    if exact.denominator == 1 and exact >= 1:
        assert thousandths(value, "n", LEAST, MOST) == exact
    else:
        with pytest.raises(Invalid, match=r"n must be a (multiple of 0\.001|number from 0\.001 to 1000000000), not "):
            thousandths(value, "n", LEAST, MOST)


@given(st.integers(1, 20_000), st.lists(st.integers(1, 3000), min_size=1, max_size=200), st.integers(0, 1 << 30))
def test_a_claim_admits_exactly_what_sums_of_fractions_allow(cap: int, factors: list[int], seed: int) -> None:
    """Beside a count in exact fractions, whatever the order in which jobs come and end."""
    draw = random.Random(seed)
    most, running = Fraction(Decimal(repr(number(cap)))), list[Fraction]()
    for place, factor in enumerate(factors):
        used = sum(running, Fraction())
        held = {"": int(used * 1000)}
        units = Fraction(Decimal(repr(number(factor))))
        fits = used + units <= most or (units > most and not used)
        admission = Admission(Rules((limit(number(cap)),)), (), held, "{}", 1)
        assert admission.admits("t", "", factor, ("", place)) == fits
        if fits:
            running.append(units)
        if running and draw.random() < 0.3:
            running.pop(draw.randrange(len(running)))


def test_limits_show_the_numbers_they_were_given() -> None:
    made = [limit(0.5), limit(2.0), per_lane(2.25), rate(0.1, per=5), share({"east": 12.5, "west": 40.0}, other=0.5)]
    assert [str(one) for one in made] == [
        "limit 0.5", "limit 2", "2.25 a lane", "rate 0.1 in 5 s", "shares east 12.5 %, west 40 %, others 0.5 %"
    ]  # fmt: skip
    assert repr(limit(0.5)) == "Limit(n=0.5)"
    assert [share({"east": 33.3}).cap("east", limit * UNIT) for limit in (1, 10)] == [333, 3330]


@pytest.mark.parametrize("none", [0, -1, 0.5, 0.999, -2.5, float("-inf")])
def test_a_throttle_limit_below_1_is_none(none: float) -> None:
    assert checked([], none) == ()
    assert checked([], 1) == (limit(1),)
    assert checked([], 1.5) == (limit(1.5),)


@pytest.mark.parametrize(
    "bad",
    [
        0,
        -1,
        0.0005,
        2.0005,
        MOST + 1,
        float("nan"),
        float("inf"),
        True,
        "1",
        None,
        pytest.param(10**5000, id="5,000 digits"),
    ],
)
@pytest.mark.parametrize("make", [limit, per_lane, rate, lambda n: share({"east": n})])
def test_bad_numbers_are_refused_in_a_sentence(make: Any, bad: Any) -> None:
    with pytest.raises(Invalid, match=r"must be a (number from 0\.001 to|multiple of 0\.001)"):
        make(bad)
    assert thousandths(FACTOR_MAX, "throttle_factor", LEAST, FACTOR_MAX) == FACTOR_MAX * UNIT
