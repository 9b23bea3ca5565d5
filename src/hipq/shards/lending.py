"""Limits over several shards: each may use its slice, and lends what it does not need to those that have jobs waiting.

A part moves in two steps, each a write of the rules of one queue in one shard. The giver has less from the first step
on; the taker has more once the giver is seen to use no more than it still has. So the slices never let more run
together than the limit says, whoever dies in between, and what is on its way is found by whoever looks next.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from hipq.errors import StoreUnavailable
from hipq.job.units import UNIT, counted
from hipq.limits.limit import whole_queue
from hipq.limits.rules import Rules
from hipq.limits.slice import WHOLE, Slice
from hipq.shards.shard import Shard
from hipq.shards.shard_set import ShardSet
from hipq.stores.claims import Claim

EVERY: Final = 0.5
"""Seconds between two looks, whichever of the engines takes them."""
TINY: Final = WHOLE // 10**9
"""A part that is too small to be worth a move."""
MOST: Final = 1_000
"""Ready jobs of a shard that are counted."""


class Lender:
    """Lends again and again, while a worker works."""

    def __init__(self, shards: ShardSet, queues: Sequence[int]) -> None:
        self._shards = shards
        self._queues = queues

    def run(self, stopped: threading.Event) -> None:
        pause = EVERY
        while not stopped.wait(pause * random.uniform(0.5, 1.5)):
            try:
                for queue in self._queues:
                    lend(self._shards, queue)
                pause = EVERY * max(len(self._shards.any(lambda store: store.engines())), 1)
            except StoreUnavailable:
                continue


@dataclass
class Need:
    """What one shard has of a queue's limit, and could use of it."""

    shard: Shard
    number: int
    slice: Slice
    held: int
    """What its jobs hold, in thousandths of units, like other weights."""
    ready: int = 0
    """Jobs that could start, as far as they were counted."""
    first: int = 0
    """The weight of the first of them."""
    place: tuple[str, int] = ("", 0)
    """The place of the first in the queue's order."""
    target: int = 0
    """What the shard is to have, as a part of `WHOLE`."""

    @property
    def enough(self) -> int:
        return self.held + max(self.ready * UNIT, self.first)


def lend(shards: ShardSet, queue: int) -> None:
    """Move units of one queue's limit to where they are needed. A shard that is away keeps what it has."""
    needs, whole = list[Need](), 0
    for shard in shards.shards:
        if shard.is_asked:
            try:
                need, whole = _need(shards.own(queue, shard), shard)
            except StoreUnavailable:
                continue
            needs.append(need)
    if not whole or len(needs) < 2:
        return
    _settle(needs, whole)
    if any(need.ready for need in needs):
        share_out(needs, whole)
        _move(needs, whole)


def _need(number: int, shard: Shard) -> tuple[Need, int]:
    """What a shard needs, and the whole limit; 0 = there is none."""
    with shard.asked() as store:
        limits = store.limits(number)
        rules, held = limits.rules, sum(limits.held.values())
        whole, part = counted(whole_queue(rules.whole)), rules.slice or Slice(0)
        need = Need(shard, number, part, held)
        if not whole:
            return need, 0
        now = store.now()
        unlimited = replace(rules, changed=(), slice=None)
        claim = Claim(number, tuple(store.waiting_types(number, MOST)), 1)
        for head in store.would_start(claim, now, unlimited):
            need.ready = store.counts(number, MOST, now, now).ready
            need.first, need.place = head.group.factor, head.place
    return need, whole


def share_out(needs: Sequence[Need], whole: int) -> None:
    """Set the target of each shard. Nobody is to have less than its jobs hold. Of what is left, the first jobs of the
    shards get enough to start, in the order of the queue; and then all that have jobs waiting get the same."""

    def part(weight: int) -> int:
        return -(-weight * WHOLE // whole)

    for need in needs:
        need.target = part(need.held)
    left = sum(need.slice.part - need.target for need in needs)
    hungry = sorted((need for need in needs if need.ready), key=lambda need: need.place)
    for n, need in enumerate(hungry):
        if part(need.first) <= left + TINY or n == 0:  # no job of another shard passes the first of all
            left -= (given := min(part(need.first), left))
            need.target += given
    while left + TINY >= part(UNIT) and (some := [one for one in hungry if one.target < part(one.enough)]):
        poorest = min(some, key=lambda need: need.target)
        left -= (given := min(part(UNIT), left))
        poorest.target += given
    for need in needs:  # nobody needs the rest: it stays where it is
        left -= (kept := min(max(need.slice.part - need.target, 0), max(left, 0)))
        need.target += kept


def _move(needs: Sequence[Need], whole: int) -> None:
    """The first step: who has more than it is to have sends a part to who has less."""
    for giver in needs:
        for taker in needs:
            lack = taker.target - taker.slice.part
            part = min(giver.slice.part - giver.target, lack)
            if giver is not taker and part > 0 and lack > TINY:
                giver.slice = _changed(giver, giver.slice.giving(part, str(taker.shard.slot)))
                taker.target -= part
    _settle(needs, whole)


def _settle(needs: Sequence[Need], whole: int) -> None:
    """The second step: what a giver has sent is its taker's, once the giver's jobs hold no more than it still has."""
    for giver in needs:
        for taker in needs:
            sent = giver.slice.sent.get(str(taker.shard.slot), 0)
            if sent > taker.slice.got.get(str(giver.shard.slot), 0) and _is_within(giver, whole):
                taker.slice = _changed(taker, taker.slice.taking(sent, str(giver.shard.slot)))


def _is_within(giver: Need, whole: int) -> bool:
    with giver.shard.asked() as store:
        limits = store.limits(giver.number)
    part = limits.rules.slice or Slice(0)
    return sum(limits.held.values()) <= part.thousandths(whole)


def _changed(need: Need, after: Slice) -> Slice:
    """Write a shard's slice, if it is what it was when somebody looked: others may lend at the same time."""
    with need.shard.asked() as store:
        stored = store.change_rules(need.number, _replaced(need.slice, after))
    return stored.slice or Slice(0)


def _replaced(before: Slice, after: Slice) -> Callable[[Rules], Rules]:
    return lambda rules: replace(rules, slice=after) if rules.slice == before else rules
