"""What the application around the dashboard says of a visitor: `asgi(app, authenticate=...)`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hipq.dashboard.visit import NOBODY, Role, Visitor, role_of
from hipq.errors import Invalid, shown

Said = Visitor | Role | str | None
Authenticate = Callable[[MutableMapping[str, Any]], Said | Awaitable[Said]]
"""From the ASGI scope, with whatever middleware has put there, to a visitor, a role, or None: nobody."""


async def hosted(authenticate: Authenticate, scope: MutableMapping[str, Any]) -> Visitor:
    """Who it is. What is no answer, or an error, lets nobody in."""
    if inspect.iscoroutinefunction(authenticate):
        return visitor_of(await authenticate(scope))
    said = await asyncio.to_thread(authenticate, scope)  # it may ask a database
    return visitor_of(await said if inspect.isawaitable(said) else said)


def visitor_of(said: object) -> Visitor:
    match said:
        case None:
            return NOBODY
        case Visitor(name, role):
            if not isinstance(name, str):
                raise Invalid(f"a visitor's name is a text, not {shown(name)}")
            return Visitor(name, role_of(role))
        case str() | Role():
            return Visitor("somebody", role_of(said))
    raise Invalid(f"authenticate= says a Visitor, a role or None, not {shown(said)}")
