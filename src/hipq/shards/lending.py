"""Limits over several shards: each may use its slice, and lends what it does not need to those that have jobs waiting.

A part moves in two steps, each a write of the rules of one queue in one shard. The giver has less from the first step
on; the taker has more once the giver is seen to use no more than it still has. So the slices never let more run
together than the limit says, whoever dies in between, and what is on its way is found by whoever looks next.
"""

from __future__ import annotations

import logging
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
STEPS: Final = 200
"""Into so many steps a large limit is cut to be shared out."""
MOST: Final = 1_000
"""Ready jobs of a shard that are counted."""


class Lender:
    """Lends again and again, while a worker works."""

    def __init__(self, shards: ShardSet, queues: Sequence[int]) -> None:
        self._shards = shards
        self._queues = queues

    def look(self) -> bool:
        """Lend where that is needed. Returns whether anything moved."""
        moved = [lend(self._shards, queue) for queue in self._queues]
        return any(moved)

    def run(self, stopped: threading.Event) -> None:
        pause = EVERY
        while not stopped.wait(pause * random.uniform(0.5, 1.5)):
            try:
                self.look()
                pause = EVERY * max(len(self._shards.any(lambda store, _: store.engines())), 1)
            except StoreUnavailable:
                continue
            except Exception:
                logging.getLogger("hipq").exception("limits could not be lent among the shards")


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


def lend(shards: ShardSet, queue: int) -> bool:
    """Move units of one queue's limit to where they are needed. A shard that is away keeps what it has. Returns whether
    any moved."""
    needs, whole = list[Need](), 0
    for shard in shards.shards:
        if shard.is_asked:
            try:
                need, whole = _need(shards.own(queue, shard), shard)
            except StoreUnavailable:
                continue
            needs.append(need)
    if not whole or len(needs) < 2:
        return False
    before = [need.slice for need in needs]
    _settle(needs, whole)
    if any(need.ready for need in needs):
        share_out(needs, whole)
        _move(needs, whole)
    return before != [need.slice for need in needs]


def _need(number: int, shard: Shard) -> tuple[Need, int]:
    """What a shard needs, and the whole limit; 0 = there is none."""
    with shard.asked() as store:
        whole = counted(whole_queue(store.rules(number).whole))
        if not whole:
            return Need(shard, number, Slice(0), 0), 0
        limits = store.limits(number)
        rules, now = limits.rules, store.now()
        need = Need(shard, number, rules.slice or Slice(0), sum(limits.held.values()))
        unlimited = replace(rules, changed=(), slice=None)
        claim = Claim(number, tuple(store.waiting_types(number, MOST)), 1)
        for head in store.would_start(claim, now, unlimited):
            need.ready = store.counts(number, MOST, now, now).ready
            need.first, need.place = head.group.factor, head.place
    return need, whole


def share_out(needs: Sequence[Need], whole: int) -> None:
    """Set the target of each shard. Those without waiting jobs keep what their jobs hold. The others get the same, as
    far as they can use that; but the first job of all gets what it weighs, so that light jobs do not pass it for
    ever."""

    def part(weight: int) -> int:
        return -(-weight * WHOLE // whole)

    wanting = [need for need in needs if need.ready]
    for need in needs:
        need.target = 0 if need.ready else part(need.held)
    left = max(sum(need.slice.part - need.target for need in needs), 0)  # a limit that was lowered may be exceeded
    first = min(wanting, key=lambda need: need.place)
    left -= (given := min(part(first.first + (first.held if first.first > UNIT else 0)), left))
    first.target += given
    step = max(left // part(UNIT) // STEPS, 1) * part(UNIT)
    while left + TINY >= part(UNIT) and (some := [one for one in wanting if one.target < part(one.enough)]):
        poorest = min(some, key=lambda need: need.target)
        left -= (given := min(step, left))
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
    """The second step: what a giver has sent is its taker's, but for what the giver's jobs still hold of it. As long as
    they hold some, only the first of its takers gets any: several lenders may do this at the same time."""
    for giver in needs:
        sent = {taker.shard.slot: _on_its_way(giver, taker) for taker in needs if taker is not giver}
        if not any(sent.values()):
            continue
        still_held = _held_too_much(giver, whole)
        for taker in needs:
            if under_way := sent.get(taker.shard.slot, 0):
                part = min(under_way, sum(sent.values()) - still_held)
                if part > 0:
                    taker.slice = _changed(taker, taker.slice.taking(part, str(giver.shard.slot)))
                if still_held:
                    break


def _on_its_way(giver: Need, taker: Need) -> int:
    sent = giver.slice.sent.get(str(taker.shard.slot), 0)
    return sent - taker.slice.got.get(str(giver.shard.slot), 0)


def _held_too_much(giver: Need, whole: int) -> int:
    """The part that a shard's jobs hold beyond what it may use."""
    with giver.shard.asked() as store:
        limits = store.limits(giver.number)
    own, held = limits.rules.slice or Slice(0), sum(limits.held.values())
    return max(-(-held * WHOLE // whole) - own.part, 0) if held > own.thousandths(whole) else 0


def _changed(need: Need, after: Slice) -> Slice:
    """Write a shard's slice, if it is what it was when somebody looked: others may lend at the same time."""
    with need.shard.asked() as store:
        stored = store.change_rules(need.number, _replaced(need.slice, after))
    return stored.slice or Slice(0)


def _replaced(before: Slice, after: Slice) -> Callable[[Rules], Rules]:
    return lambda rules: replace(rules, slice=after) if rules.slice == before else rules
