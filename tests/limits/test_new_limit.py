"""A new kind of limit is counted, explained and listed from one file: nothing else in hipq has heard of this one. To be
stored, it would have to be in `AnyLimit` as well."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from hipq import Hipq, Invalid, limit, per_lane
from hipq.cli.queue import _text
from hipq.engine.why import why
from hipq.job.model import Row, queue_of
from hipq.job.when import SECOND
from hipq.limits.admission import Admission
from hipq.limits.base import BaseLimit
from hipq.limits.rules import Rules, refusal
from hipq.looking.lanes import lanes_of
from hipq.stores.values import EngineSeen, Holder, Limits


class PerRegion(BaseLimit, frozen=True, tag="per region"):
    """At most n thousandths of units of each region, which is what a lane is named before its first dot."""

    n: int

    function: ClassVar[str] = "per_region"
    reason: ClassVar[str] = "region full"

    def pool_name(self, lane: str) -> str:
        return f"region {lane.partition('.')[0]}"

    def cap(self, lane: str, whole: int) -> int:
        return self.n

    def subject(self, lane: str) -> str:
        return self.pool_name(lane)

    def __str__(self) -> str:
        return f"{self.n} a region"


def rules(*limits: BaseLimit) -> Rules:
    return Rules(limits=limits)  # type: ignore[arg-type]  # to be stored, it would have to be one of AnyLimit


def test_a_claim_counts_its_pools_beside_those_of_other_limits() -> None:
    held = {"eu.east": 1000, "eu.west": 1000, "us": 500}
    admission = Admission(rules(limit(10), PerRegion(3000), per_lane(2)), (), held, "{}", 1)
    assert admission.admits("t", "eu.south", 1000, ("1", 1))
    assert not admission.admits("t", "eu.south", 1000, ("1", 2)), "the region is full"
    assert admission.admits("t", "us", 1000, ("1", 3)), "another region is not"
    assert not admission.admits("t", "us", 1000, ("1", 4)), "its lane would have 2.5"


def test_a_job_that_never_fits_is_refused_with_the_limit_s_own_words() -> None:
    assert refusal(rules(PerRegion(3000)), "eu.east", 4000) == "throttle_factor 4 is above the queue's 3000 a region"
    assert refusal(rules(PerRegion(3000)), "eu.east", 3000) == ""


def test_a_queue_has_one_at_most() -> None:
    with pytest.raises(Invalid, match="a queue has one per_region at most"):
        PerRegion(1).check([PerRegion(1), limit(2), PerRegion(2)])


def full(tmp_path: Path) -> tuple[Row, Limits]:
    """A ready job in a region whose units are all taken."""
    with closing(Hipq("shop", f"sqlite:///{tmp_path}/shop.db")) as app:
        app.migrate()
        queue = app.queue("orders")
        row = app.store.get(queue.job("work")(lambda _: None).enqueue(lane="eu.east"))
        assert row is not None
        holders = [Holder(11, "eu.west", 2000, 7), Holder(12, "us", 500, 7)]
        held = {"eu.west": 2000, "us": 500}
        return row, app.store.limits(queue.number)._replace(rules=rules(PerRegion(2000)), held=held, holders=holders)


def test_why_names_what_is_full_and_who_holds_it(tmp_path: Path) -> None:
    row, limits = full(tmp_path)
    engine = EngineSeen(7, "here", {str(queue_of(row.id)): ["work"]})
    found = why(row, limits, [engine], row.update_time + SECOND)
    assert (found.reason, found.sentence) == ("region full", "region eu is full: 2 of 2 units taken by job 11")
    assert found.details["limit"] == "2000 a region"


def test_the_command_line_lists_it(tmp_path: Path) -> None:
    _, limits = full(tmp_path)
    assert _text(limits.rules.in_force) == "2000 a region"
    assert lanes_of(limits) == [{"lane": "eu.west", "used": 2, "most": 2}, {"lane": "us", "used": 0.5, "most": 2}]
