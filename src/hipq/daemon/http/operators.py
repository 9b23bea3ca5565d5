"""The dashboard at `/` of a daemon, for its operators: who has an admin's token logs in with it.

It is put together when somebody first asks for something that is no route of the daemon.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from hipq.daemon.dashboard.pages import pages_of
from hipq.dashboard.application import Dashboard
from hipq.dashboard.gate import Gate
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role, Visit, Visitor
from hipq.errors import StoreUnavailable

if TYPE_CHECKING:
    from hipq.daemon.http.api import Api
    from hipq.daemon.tenancy.authenticator import Authenticator
    from hipq.daemon.tenancy.tenants import Caller, Tenants


class AdminTokens:
    """The admins' tokens as they were looked up last: a revoked one opens nothing. A tenant's is none of them."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    def visitor(self, token: str) -> Visitor | None:
        found = self._tenants.latest.callers.get(sha256(token.encode("utf-8", "surrogatepass")).digest())
        return _visitor(found) if found is not None and found.is_admin else None

    def named(self, name: str) -> tuple[Visitor, bytes] | None:
        for caller in self._tenants.latest.callers.values():
            if caller.is_admin and _visitor(caller).name == name:
                return _visitor(caller), caller.digest
        return None


class OperatorsDashboard(Dashboard):
    """With `tokens=False` whoever can connect is an operator, as everywhere at such a daemon."""

    def __init__(self, api: Api, door: Authenticator, *, tokens: bool) -> None:
        self._api, self._door = api, door
        gate = Gate(AdminTokens(api.service.tenants)) if tokens else Gate(is_hosted=True)
        site = Site([api.service.app], gate=gate, more=pages_of(api.service))
        super().__init__(site, None if tokens else self._anybody)

    async def admitted(self, visit: Visit, scope: Any) -> Visit:
        if authorization := visit.headers.get("authorization", ""):
            with suppress(StoreUnavailable):
                await self._door.caller(authorization.encode("latin-1"))  # looks for tokens that are new
        else:
            await self._door.refresh(at_once=visit.path == "/login" and self.site.gate.tokens is not None)
        return await super().admitted(visit, scope)

    async def _anybody(self, scope: Any) -> Visitor | None:
        """Not the page of another site whose name leads here."""
        return Visitor("anybody", Role.ADMIN) if self._api.is_for_loopback(dict(scope["headers"])) else None


def _visitor(caller: Caller) -> Visitor:
    return Visitor(f"token {caller.token}", Role.ADMIN)
