"""Who may wait for the store next: the calls that need it wait in threads, and there are only so many.

Each tenant has a part of them at most, and tenants take turns: whoever comes waits for calls that are under way, but
not for those that another tenant has waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")
LEAST: Final = 4
"""Calls at once, where a store does one thing at a time: not all they do is to wait for it."""
OWN: Final = 2
"""Connections that are left to the daemon itself."""
SHARE: Final = 4
"""One tenant has a quarter at most."""


class FairSemaphore:
    """Lives on one event loop."""

    def __init__(self, at_once: int) -> None:
        """`at_once`: what the store can do at the same time. More calls than that would only wait in there, where
        nobody takes turns."""
        self._most = max(at_once - OWN, LEAST)
        self._each = max(min(at_once, self._most) // SHARE, 1)
        self._threads = CapacityLimiter(self._most)
        self._under_way = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By tenant; who was served last is last."""

    async def call(self, tenant: str, do: Callable[[], T]) -> T:
        """In a thread, when it is this tenant's turn."""
        async with self.of(tenant):
            return await to_thread.run_sync(do, limiter=self._threads)

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        await self._enter(tenant)
        try:
            yield
        finally:
            self._leave(tenant)

    def _has_room(self, tenant: str) -> bool:
        return self._under_way[tenant] < self._each and self._under_way.total() < self._most

    async def _enter(self, tenant: str) -> None:
        if self._has_room(tenant):  # so nobody waits who could go on
            self._under_way[tenant] += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await asyncio.shield(turn)  # else who is cancelled has no turn, and still stands in line, for a moment
        except asyncio.CancelledError:
            if turn.done():
                self._leave(tenant)  # its turn had come
            else:
                self._forget(tenant, turn)
            raise

    def _leave(self, tenant: str) -> None:
        self._under_way -= Counter([tenant])  # tenants without a call under way are not remembered
        following = next((name for name in self._waiting if self._has_room(name)), None)
        if following is not None:
            turn = self._waiting[following][0]
            self._forget(following, turn)
            if rest := self._waiting.pop(following, None):
                self._waiting[following] = rest  # behind the others
            self._under_way[following] += 1
            turn.set_result(None)

    def _forget(self, tenant: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting[tenant]
        turns.remove(turn)
        if not turns:
            del self._waiting[tenant]
