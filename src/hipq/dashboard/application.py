"""`asgi(app)`: the dashboard as an ASGI application, to be mounted in another one or run alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from hipq.dashboard.gate import gate_of
from hipq.dashboard.headers import secured
from hipq.dashboard.hosted import Authenticate, hosted
from hipq.dashboard.request import Receive, Scope, visit_of, with_form
from hipq.dashboard.site import Site
from hipq.dashboard.static_files import static_reply
from hipq.dashboard.visit import Reply, Visit

if TYPE_CHECKING:
    from hipq.app import Hipq

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def asgi(
    app: Hipq, *, tokens: Mapping[str, tuple[str, str]] | None = None, authenticate: Authenticate | None = None,
    mask: Collection[str] = (), read_only: bool = False,
) -> Dashboard:  # fmt: skip
    """An ASGI application that shows this instance: `fastapi_app.mount("/hipq", hipq.dashboard.asgi(app, ...))`.

    Who may come in: `tokens={"ann": ("admin", "a long secret")}`, else $HIPQ_DASHBOARD_TOKENS; or your application says
    who somebody is: `authenticate`, plain or async, takes the ASGI scope and returns a `Visitor`, a role or None."""
    gate = gate_of(tokens, is_hosted=authenticate is not None)
    return Dashboard(Site([app], mask=mask, read_only=read_only, gate=gate), authenticate)


class Dashboard:
    def __init__(self, site: Site, authenticate: Authenticate | None = None) -> None:
        self.site = site
        self._authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _send(send, await self._reply(scope, receive))

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        visit = visit_of(scope)
        if file := static_reply(visit.path, visit.asked("v")):
            return file
        visit = await self.admitted(visit, scope)
        complete = await with_form(visit, receive)
        if complete is None:
            return secured(Reply(413, b"this form is too large\n", "text/plain; charset=utf-8"))
        return await asyncio.to_thread(self.site.reply, complete)

    async def admitted(self, visit: Visit, scope: Scope) -> Visit:
        """The visit, with who it is: nobody, if nobody says otherwise."""
        who = await hosted(self._authenticate, scope) if self._authenticate else None
        return self.site.gate.admit(visit, who)


async def _send(send: Send, reply: Reply) -> None:
    named = [("content-type", reply.type), ("content-length", str(len(reply.body))), *reply.headers]
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
