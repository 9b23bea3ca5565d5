"""The rules in a queue's row of the registry: its limits, its pauses, how its lanes take turns, how long answers stay.

The code gives the defaults, which every engine writes when it starts. What an operator changed is stored beside the
defaults, and wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from hipq.errors import Invalid, shown
from hipq.job.answer import DEFAULT_KEEPING, Keeping
from hipq.job.order import AnyOrder, ByTime
from hipq.job.units import Number, counted
from hipq.limits.handlers import PerHandler
from hipq.limits.limit import Limit, limit, whole_queue
from hipq.limits.per_lane import PerLane
from hipq.limits.rate import Rate
from hipq.limits.share import Share
from hipq.limits.slice import WHOLE, Slice
from hipq.limits.tenants import PerTenant

AnyLimit = Limit | PerLane | PerTenant | PerHandler | Share | Rate
"""The limits that can be stored. The `tag` of each names it in the stored JSON."""


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    limits: tuple[AnyLimit, ...] = ()
    """The limits that the code gives."""
    changed: tuple[AnyLimit, ...] | None = None
    """The limits that an operator gives instead."""
    order: AnyOrder = ByTime()
    """The order in which jobs start, from which their ranks are made."""
    lanes: str = "ordered"
    throttled: bool = False
    """Whether a code throttler decides, too: then a job starts only if it is admitted."""
    keeping: Keeping = DEFAULT_KEEPING
    """How long answers are kept."""
    paused: bool = False
    paused_lanes: tuple[str, ...] = ()
    paused_types: tuple[str, ...] = ()
    slice: Slice | None = None
    """The part of the limits that this shard has, where a queue has several."""

    @property
    def in_force(self) -> tuple[AnyLimit, ...]:
        """What the jobs of this database may use: all of the limits, or this shard's part of them."""
        part = self.slice
        return self.whole if part is None else tuple(one.cut(part) for one in self.whole)

    @property
    def is_cut(self) -> bool:
        return self.slice is not None and (self.slice.part < WHOLE or self.slice.even < WHOLE)

    @property
    def whole(self) -> tuple[AnyLimit, ...]:
        """The operator's limits, or else the code's. The daemon's quotas always come from `limits`: the daemon keeps
        them up to date there, and `changed` may have a copy that is out of date."""
        if self.changed is None:
            return self.limits
        chosen = [one for one in self.changed if not one.set_by_daemon]
        return (*chosen, *(one for one in self.limits if one.set_by_daemon))

    @property
    def plain(self) -> bool:
        """Whether nothing but the order decides what starts."""
        return not (self.in_force or self.throttled or self.paused or self.paused_lanes or self.paused_types)

    @property
    def most(self) -> Number:
        """The limit of the whole queue; 0 = none."""
        return whole_queue(self.in_force)

    @property
    def has_rate(self) -> bool:
        return any(one.counts_starts for one in self.in_force)

    def by_pool(self, lane: str) -> dict[str, AnyLimit]:
        """The limits that apply to jobs of this lane, by the name of the pool in which each counts them."""
        whole = counted(self.most)
        return {one.pool_name(lane): one for one in self.in_force if one.applies(lane, whole)}

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()


NO_RULES = Rules()
_decoder = msgspec.json.Decoder(Rules)


def load(text: str) -> Rules:
    return NO_RULES if text == "{}" else _decoder.decode(text)


def checked(limits: Sequence[Any], throttle_limit: float = 0) -> tuple[AnyLimit, ...]:
    """The limits as a tuple, if a queue can have them together. A `throttle_limit` below 1 means none; use `limit(0.5)`
    for such a one."""
    if isinstance(throttle_limit, bool) or not isinstance(throttle_limit, (int, float)):
        raise Invalid(f"throttle_limit must be a number, not {shown(throttle_limit)}")
    if isinstance(limits, (str, bytes)) or not isinstance(limits, Sequence):
        raise Invalid(f"limits must be a list like [limit(100), per_lane(10)], not {shown(limits)}")
    found: list[AnyLimit] = [] if throttle_limit < 1 else [limit(throttle_limit)]
    for one in limits:
        if not isinstance(one, AnyLimit):
            *some, last = [f"{kind.function}()" for kind in get_args(AnyLimit) if kind.function]
            raise Invalid(f"a limit is one of {', '.join(some)} and {last}, not {shown(one)}")
        found.append(one)
    for one in found:
        one.check(found)
    return tuple(found)


def refusal(rules: Rules, lane: str, factor: int) -> str:
    """Why a job of this lane and weight (in thousandths) never fits the limits in force; "" if it does."""
    whole = counted(rules.most)
    reasons = (one.refusal(lane, factor, whole) for one in rules.in_force if one.applies(lane, whole))
    return next(filter(None, reasons), "")
