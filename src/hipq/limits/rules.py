"""What a queue's row in the registry says: its limits, its pauses, how its lanes take turns, how long it keeps answers.

Code gives the defaults, written by every engine that starts. What an operator changed is kept beside them, and wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from hipq.errors import Invalid, shown
from hipq.job.answer import DEFAULT_KEEPING, Keeping
from hipq.job.order import AnyOrder, ByTime
from hipq.job.units import UNIT, Number, counted, number
from hipq.limits.limit import Limit, PerLane, limit
from hipq.limits.rate import Rate
from hipq.limits.share import Share
from hipq.limits.tenants import PerTenant

AnyLimit = Limit | PerLane | PerTenant | Share | Rate


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    limits: tuple[AnyLimit, ...] = ()
    """What the code says."""
    changed: tuple[AnyLimit, ...] | None = None
    """What an operator says instead."""
    order: AnyOrder = ByTime()
    """By which ranks are made."""
    lanes: str = "ordered"
    throttled: bool = False
    """Jobs start by the leave of a code throttler only."""
    keeping: Keeping = DEFAULT_KEEPING
    """How long answers are kept."""
    paused: bool = False
    paused_lanes: tuple[str, ...] = ()
    paused_types: tuple[str, ...] = ()

    @property
    def in_force(self) -> tuple[AnyLimit, ...]:
        """What an operator says takes the place of what the code says, but for the quotas of tenants: those are
        operators' words too, said elsewhere, and `changed` may have them as they were."""
        if self.changed is None:
            return self.limits
        chosen = [one for one in self.changed if not isinstance(one, PerTenant)]
        return (*chosen, *(one for one in self.limits if isinstance(one, PerTenant)))

    @property
    def plain(self) -> bool:
        """Nothing but the order decides what starts."""
        return not (self.in_force or self.throttled or self.paused or self.paused_lanes or self.paused_types)

    @property
    def most(self) -> Number:
        """The limit of the whole queue; 0 = none."""
        return next((one.n for one in self.in_force if isinstance(one, Limit)), 0)

    @property
    def has_rate(self) -> bool:
        return any(isinstance(one, Rate) for one in self.in_force)

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()


NO_RULES = Rules()
_decoder = msgspec.json.Decoder(Rules)


def load(text: str) -> Rules:
    return NO_RULES if text == "{}" else _decoder.decode(text)


def checked(limits: Sequence[Any], throttle_limit: float = 0) -> tuple[AnyLimit, ...]:
    """A list of limits that makes sense together. A `throttle_limit` below 1 = none; `limit(0.5)` is one."""
    if isinstance(throttle_limit, bool) or not isinstance(throttle_limit, (int, float)):
        raise Invalid(f"throttle_limit must be a number, not {shown(throttle_limit)}")
    if isinstance(limits, (str, bytes)) or not isinstance(limits, Sequence):
        raise Invalid(f"limits must be a list like [limit(100), per_lane(10)], not {shown(limits)}")
    found: list[AnyLimit] = [] if throttle_limit < 1 else [limit(throttle_limit)]
    for one in limits:
        if not isinstance(one, AnyLimit):
            raise Invalid(f"a limit is one of limit(), per_lane(), share() and rate(), not {shown(one)}")
        found.append(one)
    for kind, name in ((Limit, "limit"), (PerLane, "per_lane"), (Share, "share")):
        if sum(isinstance(one, kind) for one in found) > 1:
            raise Invalid(f"a queue has one {name} at most" + (" (throttle_limit is one)" if kind is Limit else ""))
    rates = [one for one in found if isinstance(one, Rate)]
    if len(set(rates)) < len(rates):
        raise Invalid("the same rate is given twice")
    whole = next((one.n for one in found if isinstance(one, Limit)), 0)
    for one in found:
        if isinstance(one, Share):
            if not whole:
                raise Invalid("shares are parts of a limit: give throttle_limit=, or limit(n), too")
            for lane in (*one.percent, *([""] if one.other else [])):
                if one.cap(lane, counted(whole)) < UNIT:
                    least = min(filter(None, (*one.percent.values(), one.other)))
                    raise Invalid(
                        f"the share of {lane or 'other lanes'} in a limit of {whole} is less than one unit: with these "
                        f"shares the limit must be at least {math.ceil(100 / least)}"
                    )
    return tuple(found)


def refusal(rules: Rules, lane: str, factor: int) -> str:
    """Why a job of this lane and weight (in thousandths) could never run as others do; "" if it can."""
    whole, weight = rules.most, f"throttle_factor {number(factor)}"
    for one in rules.in_force:
        if isinstance(one, (Limit, PerLane, Rate)) and factor > counted(one.n):
            return f"{weight} is above the queue's {one}"
        if isinstance(one, PerTenant) and one.knows(lane) and factor > one.pool(lane, {}).cap:
            return f"{weight} is above what its tenant may run at a time"
        if isinstance(one, Share) and whole:
            if not one.knows(lane):
                return f"lane {shown(lane)} has no share in this queue: there are {', '.join(one.percent)}"
            part = one.cap(lane, counted(whole))
            if factor > part:
                return f"{weight} is above the {number(part)} units of {whole} that lane {shown(lane)} has"
    return ""
