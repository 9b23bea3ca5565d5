"""`limit(n)`: at most n units of a queue run at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, TypeVar

from msgspec.structs import replace

from hipq.errors import Invalid
from hipq.job.units import Number, counted, given
from hipq.job.why import Reason
from hipq.limits.base import LEAST, MOST, BaseLimit
from hipq.limits.slice import Slice

L = TypeVar("L", bound=BaseLimit)


class Limit(BaseLimit, frozen=True, tag="limit"):
    n: Number

    function: ClassVar[str] = "limit"
    reason: ClassVar[str] = Reason.LIMIT_FULL
    of_whole_queue: ClassVar[bool] = True

    def cut(self, to: Slice) -> Limit:
        return replace(self, n=to.of(self.n))

    def pool_name(self, lane: str) -> str:
        return "limit"

    def cap(self, lane: str, whole: int) -> int:
        return counted(self.n)

    def used(self, lane: str, held: Mapping[str, int]) -> int:
        return sum(held.values())

    def check(self, limits: Sequence[BaseLimit]) -> None:
        if len([one for one in limits if isinstance(one, Limit)]) > 1:
            raise Invalid("a queue has one limit at most (throttle_limit is one)")

    def __str__(self) -> str:
        return f"limit {self.n}"


def limit(n: float) -> Limit:
    """At most `n` units of the queue run at a time, over all engines."""
    return Limit(given(n, "limit", LEAST, MOST))


def whole_queue(limits: Iterable[BaseLimit]) -> Number:
    """The units that a queue with these limits lets run at a time; 0 = no `limit(n)` is among them."""
    return next((one.n for one in limits if isinstance(one, Limit)), 0)


def without_limit(limits: Iterable[L]) -> list[L]:
    """These limits without `limit(n)`."""
    return [one for one in limits if not isinstance(one, Limit)]
