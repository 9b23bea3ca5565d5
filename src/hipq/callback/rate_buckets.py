"""How often an address may call: one token bucket for each, in bounded memory."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

BURST: Final = 2.0
"""The seconds' worth of calls that may arrive at once."""
ADDRESSES: Final = 10_000
"""The number of addresses remembered, the latest callers first. A forgotten address starts with a full bucket."""


class RateBuckets:
    """Allows `rate` calls a second from each address; 0 = any number. `burst`: so many may arrive at once; 0 = two
    seconds' worth."""

    def __init__(self, rate: float, steady: Callable[[], float] = time.monotonic, *, burst: float = 0) -> None:
        self._rate = rate
        self._most = burst or max(rate * BURST, 1.0)
        self._steady = steady
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """The tokens that each address had left, and when."""

    def take(self, address: str) -> bool:
        """Whether this address may call now; takes a token."""
        if not self._rate:
            return True
        left = self._now_left(address)
        self._keep(address, left - 1 if left >= 1 else left)
        return left >= 1

    def has(self, address: str) -> bool:
        """Whether this address may call now; takes nothing."""
        return not self._rate or self._now_left(address) >= 1

    def charge(self, address: str, calls: float) -> None:
        """Take the tokens of `calls` calls."""
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
    """The address, or for IPv6 its first half: whoever has one such address has all that begin like it."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or found.packed[:8])
