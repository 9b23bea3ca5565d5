"""How many connections a daemon has: so many in all, and a part of them for one address.

A connection costs a descriptor, and a daemon without descriptors can start no context and open no file. Without a bound
whoever can connect could take them all, with connections that say nothing.
"""

from __future__ import annotations

import resource
from collections import Counter
from typing import Final

MOST: Final = 4096
SHARE: Final = 4
"""One address has at most this part, a quarter, of the connections. A proxy in front of the daemon is one address."""
RESERVED: Final = 512
"""Descriptors that are kept for files, the database and contexts."""


class Connections:
    """Those that are open now."""

    def __init__(self, most: int = MOST, each: int = 0) -> None:
        self.allow(most, each)
        self.leaving = False
        """The daemon is to stop: with each reply its connection ends, so that nobody sends a request on it any more."""
        self._by_address: Counter[str] = Counter()
        self.now = 0

    def allow(self, most: int, each: int = 0) -> None:
        """So many from now on; those that are open stay."""
        self.most = most
        self.each = each or max(1, most // SHARE)

    def enter(self, address: str) -> str:
        """One more from there; if there are too many of them, a sentence that says so. It counts until it leaves."""
        self.now += 1
        self._by_address[address] += 1
        if self.now > self.most:
            return f"there are {self.most} connections already; try again"
        if address and self._by_address[address] > self.each:
            return f"there are {self.each} connections from this address already; try again"
        return ""

    def leave(self, address: str) -> None:
        self.now -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


def raise_descriptors(connections: int) -> int:
    """Raise the limit on this process's descriptors as far as needed and allowed. Returns for how many connections, of
    those that are wanted, that is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else min(connections, max(soft - RESERVED, soft // 2))
