"""The dashboard at `/` of a daemon, for its operators: who has a token of theirs logs in with it.

It is put together when somebody first asks for something that is no route of the daemon.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hipq.daemon.dashboard.pages import pages_of
from hipq.daemon.tenancy.tokens import Role as TokenRole
from hipq.dashboard.application import Dashboard
from hipq.dashboard.gate import Gate
from hipq.dashboard.session import Sessions
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role, Visit, Visitor
from hipq.errors import StoreUnavailable

if TYPE_CHECKING:
    from hipq.daemon.http.api import Api
    from hipq.daemon.tenancy.authenticator import Authenticator
    from hipq.daemon.tenancy.tenants import Tenants
    from hipq.daemon.tenancy.tokens import Caller


class OperatorTokens:
    """The operators' tokens as they were looked up last: one that was revoked or has expired opens nothing. A tenant's
    is none of them: the dashboard shows what all tenants have."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    def visitor(self, token: str) -> Visitor | None:
        found = self._tenants.caller(token.encode("utf-8", "surrogatepass"))
        return visitor_of(found) if found is not None else None

    def named(self, name: str) -> tuple[Visitor, bytes] | None:
        for caller in self._tenants.latest.callers.values():
            if caller.name == name and caller.is_good and (visitor := visitor_of(caller)):
                return visitor, caller.digest
        return None


class OperatorsDashboard(Dashboard):
    """With `tokens=False` whoever can connect is an operator, as everywhere at such a daemon."""

    def __init__(self, api: Api, door: Authenticator, *, tokens: bool) -> None:
        self._api, self._door = api, door
        known = OperatorTokens(api.service.tenants) if tokens else None
        gate = Gate(known, Sessions.of_environment(), is_hosted=not tokens, on_wrong=api.wrong_tokens.add)
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


def visitor_of(caller: Caller) -> Visitor | None:
    """What an operator's token may do in the dashboard; None: nothing."""
    if not caller.is_operator:
        return None
    for role, seen in ((TokenRole.ADMIN, Role.ADMIN), (TokenRole.OPERATE, Role.OPERATE), (TokenRole.READ, Role.VIEW)):
        if role in caller.roles:
            return Visitor(caller.name, seen)
    return None
