"""How often one address may call: a bucket of tokens each, and memory for so many addresses."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

BURST: Final = 2.0
"""Seconds' worth of calls that may come at once."""
ADDRESSES: Final = 10_000
"""The ones that called last; who was forgotten starts with a full bucket."""


class RateBuckets:
    """`rate` calls a second from each address; 0 = any number."""

    def __init__(self, rate: float, steady: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = max(rate * BURST, 1.0)
        self._steady = steady
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What each had left, and when."""

    def take(self, address: str) -> bool:
        """Whether it may call now."""
        if not self._rate:
            return True
        left = self._now_left(address)
        self._keep(address, left - 1 if left >= 1 else left)
        return left >= 1

    def fine(self, address: str, calls: float) -> None:
        """A call that cost as much as so many."""
        if self._rate:
            self._keep(address, max(self._now_left(address) - calls, 0.0))

    def _now_left(self, address: str) -> float:
        left, at = self._left.get(_network(address), (self._most, 0.0))
        return min(left + (self._steady() - at) * self._rate, self._most)

    def _keep(self, address: str, left: float) -> None:
        network = _network(address)
        self._left[network] = (left, self._steady())
        self._left.move_to_end(network)
        if len(self._left) > ADDRESSES:
            self._left.popitem(last=False)


def _network(address: str) -> str:
    """Of IPv6 the first half: whoever has one address there has all that begin like it."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or found.packed[:8])
