"""How far the limits of a queue are used: by lane, and in all."""

from __future__ import annotations

from typing import Any

from hipq.job.units import Number, counted, number
from hipq.limits.rules import Rules
from hipq.stores.protocols import Store
from hipq.stores.values import Limits


def limits_in_use(store: Store, queue: int) -> Limits | None:
    """The limits and pauses of a queue, and what is held; None if it has neither."""
    rules = store.rules(queue)
    return store.limits(queue) if rules.in_force or rules.paused or paused_parts(rules) else None


def paused_parts(rules: Rules) -> tuple[str, ...]:
    """The lanes and the job types that are paused."""
    return *rules.paused_lanes, *rules.paused_types


def lanes_of(limits: Limits) -> list[dict[str, Any]]:
    """The units that each lane uses, and the most it may use: lanes in use, and lanes that a limit names."""
    rules = limits.rules
    names = sorted({*limits.held, *(lane for one in rules.in_force for lane in one.lanes)})
    return [{"lane": lane, "used": number(limits.held.get(lane, 0)), "most": _most(rules, lane)} for lane in names]


def _most(rules: Rules, lane: str) -> Number | None:
    """The smallest limit on this lane, beside the limits of the whole queue."""
    limits = [one for one in rules.by_pool(lane).values() if not one.of_whole_queue]
    return number(min(one.cap(lane, counted(rules.most)) for one in limits)) if limits else None
