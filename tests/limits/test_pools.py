"""A pool that is not a whole number of units, such as a share of 40 % in a limit of 7."""

from __future__ import annotations

from typing import Final

import pytest

from hipq import limit, rate, share
from hipq.job.units import UNIT
from hipq.limits.admission import Admission, passed_in
from hipq.limits.rules import AnyLimit, Rules

FIRST: Final = ("0", 1)
SHARE: Final = (limit(7), share({"east": 40, "west": 60}))
"""The east has 2.8 units."""


def admission(limits: tuple[AnyLimit, ...], held: int, lightest: int = UNIT, memory: str = "{}") -> Admission:
    return Admission(Rules(limits), (), {"east": held}, memory, 10_000_000, lightest)


def test_what_is_left_below_a_unit_is_no_room_for_jobs_of_a_unit() -> None:
    """A job that only waits for its turn must not count as one that lighter jobs pass: engines without its code would
    leave the lane to it for ten seconds."""
    full = admission(SHARE, 2 * UNIT)
    assert not full.admits("work", "east", UNIT, FIRST)
    assert passed_in(full.memory()) == []


@pytest.mark.parametrize(("factor", "lightest"), [(2 * UNIT, UNIT), (UNIT, UNIT // 2)])
def test_a_job_that_lighter_ones_may_pass_is_remembered(factor: int, lightest: int) -> None:
    full = admission(SHARE, 2 * UNIT, lightest)
    assert not full.admits("work", "east", factor, FIRST)
    assert passed_in(full.memory()) == [1]


def test_a_rate_cannot_know_how_light_the_jobs_were_that_it_counts() -> None:
    memory = '{"rates":{"60000000":[[9000000,9000000,2000]]}}'
    full = admission((rate(2.8, per=60),), 0, memory=memory)
    assert not full.admits("work", "east", UNIT, FIRST)
    assert passed_in(full.memory()) == [1]
