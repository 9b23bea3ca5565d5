"""From a request's Authorization to the tenant it speaks for. A token that the store does not have is 401; one that
is not known here while the store does not answer is 503, since it may be good.

Looking up a token is a dictionary's work and needs no thread. Once a second somebody asks the store in a thread what
has changed; while the store is away, the tokens that were good last are good still, since jobs are accepted then too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

from anyio import CapacityLimiter, to_thread

from hipq.daemon.tenancy.tenants import Known, Tenants, is_tenant_name
from hipq.daemon.tenancy.tokens import ALL_TENANTS, Caller, Role, Token
from hipq.errors import HipqError, StoreUnavailable

LOOKUP_SECONDS: Final = 0.5
"""Seconds a request waits for the store to say what has changed; then it goes by what was known."""
AGAIN: Final = 0.2
"""Seconds between two looks for tokens that nobody knows: rubbish is not to keep the store busy."""
UNKNOWN_SECONDS: Final = 5.0
"""Seconds a request with a token that nobody knows waits for the store: the token may be a moment old."""
LONGEST: Final = 200
"""Bytes of an Authorization that are worth a hash."""

_log = logging.getLogger("hipq")


class Authenticator:
    """Knows callers by their tokens. With `tokens=False` everybody may do everything: for a machine of one's own."""

    def __init__(self, tenants: Tenants, *, tokens: bool = True) -> None:
        self._tenants = tenants
        self._tokens = tokens
        self._anybody = Caller(ALL_TENANTS, Token("", "", 0, "anybody"), b"", frozenset(Role))
        self._looking: asyncio.Task[Any] | None = None
        self._began = self._answered = 0.0
        """When the last look began, and when the last one began to which the store replied."""
        self._told = 0.0
        self._one = CapacityLimiter(1)

    def quickly(self, authorization: bytes) -> Caller | None:
        """The caller, if that is known without asking anybody."""
        if not self._tokens:
            return self._anybody
        return self._found(authorization) if self._tenants.is_fresh else None

    def still_knows(self, known: Known) -> bool:
        """Whether what was known then is all that is known now: who was let in then, is."""
        return known is self._tenants.latest and (self._tenants.is_fresh or not self._tokens)

    async def caller(self, authorization: bytes) -> Caller | None:
        """The caller; None if nobody has this token. StoreUnavailable if that cannot be known now."""
        if not self._tokens:
            return self._anybody
        if not self._tenants.is_fresh:
            await self._look()
        if self._knows_nobody:
            raise StoreUnavailable("the database cannot be reached, so no token can be checked yet; try again")
        found = self._found(authorization)
        if found is None and _token(authorization) is not None:  # it may have been made this very moment
            wanted = time.monotonic()
            await self._look_again(wanted)
            found = self._found(authorization)
            if found is None and self._answered < wanted:
                raise StoreUnavailable("the database does not answer, so this token cannot be checked; try again")
        return found

    async def refresh(self, *, at_once: bool = False) -> None:
        """Look at the tenants again: if that was more than a second ago, or `at_once`."""
        if at_once:
            await self._look_again(time.monotonic())
        elif not self._tenants.is_fresh:
            await self._look()

    def may_act_for(self, caller: Caller, tenant: str) -> bool:
        """Whether this is its own tenant; an operator's are all there are."""
        if not caller.is_operator:
            return caller.tenant == tenant
        return tenant in self._tenants.latest.tenants if self._tokens else is_tenant_name(tenant)

    @property
    def _knows_nobody(self) -> bool:
        """Nothing is known yet, from the store or from the run before: there is nothing to go by."""
        return self._tenants.looked < 0 and not self._tenants.latest.callers

    def _found(self, authorization: bytes) -> Caller | None:
        token = _token(authorization)
        return self._tenants.caller(token) if token is not None else None

    # -- asking the store -------------------------------------------------------------------------------------------
    async def _look(self) -> None:
        """One look for all who want that; nobody waits for long."""
        if self._looking is None or self._looking.done():
            self._began = time.monotonic()
            self._looking = asyncio.get_running_loop().create_task(self._ask())
        left = self._began + LOOKUP_SECONDS - time.monotonic()
        never = self._knows_nobody
        if left > 0 or never:
            await asyncio.wait([self._looking], timeout=None if never else left)

    async def _look_again(self, wanted: float) -> None:
        """Wait for a look that began after this moment to end, but not for ever."""
        until = wanted + UNKNOWN_SECONDS
        while (left := until - time.monotonic()) > 0:
            if self._looking is not None and not self._looking.done():
                await asyncio.wait([self._looking], timeout=left)
            elif self._began >= wanted:
                return
            elif (pause := self._began + AGAIN - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            else:
                await self._look()

    async def _ask(self) -> None:
        began = self._began
        try:
            await to_thread.run_sync(self._tenants.look, limiter=self._one)
            self._answered = began
        except HipqError as error:
            if time.monotonic() - self._told >= 10:
                self._told = time.monotonic()
                _log.warning("tenants cannot be looked up, so those known last count: %s", error)


def _token(authorization: bytes) -> bytes | None:
    if len(authorization) > LONGEST or authorization[:7].lower() != b"bearer ":
        return None
    return authorization[7:].strip() or None
