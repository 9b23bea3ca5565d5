"""What shards may use together is never more than the limit, whoever lends what when, and whoever dies in between."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from hipq import limit
from hipq.errors import StoreUnavailable
from hipq.job.units import UNIT
from hipq.limits.rules import Rules
from hipq.limits.slice import WHOLE, Slice
from hipq.shards.lending import Need, lend, share_out
from hipq.stores.claim_groups import ClaimGroup, Head
from hipq.stores.values import Counts, Limits


class Ledger:
    """The rules of a queue in one shard, what its jobs hold and want, and a claim as stores decide it."""

    def __init__(self, slot: int, n: float, part: int) -> None:
        self.slot, self.name = slot, f"s{slot}"
        self.kept = Rules((limit(n),), slice=Slice(part))
        self.running: list[int] = []
        self.ready: list[int] = []
        self.dies_after = 1 << 60
        """The writes after which the lender dies."""
        self.is_asked = True

    @contextmanager
    def asked(self) -> Iterator[Ledger]:
        yield self

    def claim(self) -> None:
        cap = round(self.kept.most * UNIT)
        while self.ready and sum(self.running) + self.ready[0] <= cap:
            self.running.append(self.ready.pop(0))

    def now(self) -> int:
        return 0

    def set_limit(self, n: float) -> None:
        self.kept = replace(self.kept, limits=(limit(n),))

    def rules(self, _queue: int) -> Rules:
        return self.kept

    def limits(self, _queue: int) -> Limits:
        return Limits(self.kept, "{}", {"": sum(self.running)}, [], "")

    def waiting_types(self, _queue: int, _most: int) -> list[str]:
        return ["work"]

    def would_start(self, _claim: Any, _now: int, _rules: Rules) -> list[Head]:
        return [Head(ClaimGroup("work", "", "[]", self.ready[0]), ("", self.slot))] if self.ready else []

    def counts(self, *_: Any) -> Counts:
        return Counts(len(self.ready), 0, 0, 0, 0, 0, 0, 0, 0, 0)

    def change_rules(self, _queue: int, change: Callable[[Rules], Rules]) -> Rules:
        self.dies_after -= 1
        if self.dies_after < 0:
            raise KeyboardInterrupt
        self.kept = change(self.kept)
        return self.kept


class Shards:
    def __init__(self, n: float, parts: list[int]) -> None:
        self.shards = [Ledger(slot, n, part) for slot, part in enumerate(parts)]

    def own(self, queue: int, _shard: Ledger) -> int:
        return queue


def run(shards: Shards) -> None:
    lend(shards, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 7, 10, 100, 2.5])
def test_a_shard_alone_in_need_gets_all(n: float) -> None:
    shards = Shards(n, [WHOLE // 3 + 1, WHOLE // 3, WHOLE // 3])
    first, *_ = shards.shards
    first.ready = [UNIT] * 500
    run(shards)
    first.claim()
    assert sum(first.running) == int(n) * UNIT


def test_two_in_need_share_and_what_one_had_comes_back() -> None:
    shards = Shards(10, [WHOLE, 0])
    first, second = shards.shards
    first.ready = [UNIT] * 500
    first.claim()
    assert len(first.running) == 10
    second.ready = [UNIT] * 500
    for _ in range(3):
        run(shards)
        second.claim()
        assert not second.running  # what the first still holds is not lent
    for _ in range(10):
        first.running.pop()
        first.claim()
        run(shards)
        second.claim()
        assert len(first.running) + len(second.running) <= 10
    assert (len(first.running), len(second.running)) == (5, 5)


def test_a_heavy_job_gets_its_units_together() -> None:
    shards = Shards(100, [WHOLE // 3 + 1, WHOLE // 3, WHOLE // 3])
    shards.shards[0].ready = [90 * UNIT]
    for shard in shards.shards[1:]:
        shard.ready = [UNIT] * 500
        shard.claim()
    for _ in range(200):
        run(shards)
        for shard in shards.shards:
            shard.claim()
        for shard in shards.shards[1:]:
            del shard.running[:3]
    assert not shards.shards[0].ready


def test_a_limit_that_was_lowered_below_what_is_held_lends_nothing() -> None:
    shards = Shards(100, [WHOLE // 3 + 1, WHOLE // 3, WHOLE // 3])
    first, second, third = shards.shards
    for shard, count in ((first, 34), (second, 33)):
        shard.running = [UNIT] * count
    for shard in shards.shards:
        shard.set_limit(50)
    third.ready = [UNIT] * 5
    for _ in range(3):
        run(shards)
        third.claim()
    assert not third.running
    first.running, second.running = [], []
    run(shards)
    third.claim()
    assert len(third.running) == 5


def test_a_heavy_job_beside_others_of_its_shard_gets_enough_for_both() -> None:
    shards = Shards(100, [WHOLE // 2, WHOLE // 2])
    heavy, light = shards.shards
    heavy.running, heavy.ready = [UNIT] * 3, [90 * UNIT]
    light.ready = [UNIT] * 10_000
    light.claim()
    for _ in range(80):
        run(shards)
        heavy.claim()
        light.claim()
        del light.running[:3]
    assert heavy.running == [UNIT] * 3 + [90 * UNIT]


def test_a_large_limit_is_shared_out_quickly() -> None:
    shards = Shards(1_000_000, [WHOLE, 0])
    for shard in shards.shards:
        shard.ready = [UNIT] * 1_000
    began = time.process_time()
    run(shards)
    assert time.process_time() - began < 1


def test_a_shard_that_is_away_keeps_what_it_has() -> None:
    shards = Shards(9, [WHOLE // 3 + 1, WHOLE // 3, WHOLE // 3])
    shards.shards[2].is_asked = False
    shards.shards[0].ready = [UNIT] * 20
    run(shards)
    shards.shards[0].claim()
    assert len(shards.shards[0].running) == 6


@pytest.mark.parametrize("seed", range(60))
def test_the_limit_is_never_exceeded_and_all_of_it_is_used(seed: int) -> None:
    draw = random.Random(seed)
    n, count = draw.choice([1, 3, 7, 10, 33, 100]), draw.choice([2, 3, 5])
    shards = Shards(n, [WHOLE // count + (WHOLE % count if slot == 0 else 0) for slot in range(count)])
    most = max(n * UNIT // 3, UNIT)
    for _ in range(150):
        for shard in shards.shards:
            if draw.random() < 0.3:
                shard.ready += [draw.choice([UNIT, UNIT, 500, most]) for _ in range(draw.randrange(12))]
            shard.claim()
            draw.shuffle(shard.running)
            del shard.running[: draw.randrange(3)]
            shard.is_asked = draw.random() < 0.9
            shard.dies_after = draw.randrange(4) if draw.random() < 0.2 else 1 << 60
        try:
            run(shards)
        except (KeyboardInterrupt, StoreUnavailable):
            pass
        assert sum(sum(shard.running) for shard in shards.shards) <= n * UNIT
        assert sum(shard.kept.slice.part for shard in shards.shards if shard.kept.slice) <= WHOLE
    for shard in shards.shards:
        shard.is_asked, shard.dies_after = True, 1 << 60
        shard.ready, shard.running = [], []
    last = shards.shards[-1]
    last.ready = [UNIT] * 1_000
    run(shards)
    last.claim()
    assert len(last.running) == n  # nothing was lost on its way


def test_targets_leave_those_without_waiting_jobs_what_they_hold() -> None:
    draw = random.Random(1)
    for _ in range(500):
        parts = [draw.random() for _ in range(4)]
        whole = 12 * UNIT
        needs = [
            Need(None, 1, Slice(int(WHOLE * part / sum(parts))), 0, draw.randrange(9), UNIT, ("", n))  # type: ignore[arg-type]
            for n, part in enumerate(parts)
        ]
        for need in needs:
            need.held = draw.randrange(need.slice.thousandths(whole) + 1)
            need.first = need.first if need.ready else 0
        if not any(need.ready for need in needs):
            continue
        share_out(needs, whole)
        assert all(need.target >= need.held * WHOLE // whole for need in needs if not need.ready)
        assert sum(need.target for need in needs) <= WHOLE + 4
