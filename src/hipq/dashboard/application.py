"""`asgi(app)`: the dashboard as an ASGI application, to be mounted in another one or run alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from hipq.app import Hipq
from hipq.dashboard.gate import gate_of
from hipq.dashboard.headers import secured
from hipq.dashboard.hosted import Authenticate, hosted
from hipq.dashboard.live import Live
from hipq.dashboard.more import More
from hipq.dashboard.request import Receive, Scope, visit_of, with_form
from hipq.dashboard.site import Site
from hipq.dashboard.static_files import static_reply
from hipq.dashboard.visit import Refused, Reply, Role, Visit, Visitor
from hipq.errors import Invalid

if TYPE_CHECKING:
    from hipq.waiter import Waiter

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
STREAM: Final = "/live"
THREADS: Final = 4
"""Pages that are made at a time: the host application's threads are not used for them."""


def asgi(
    app: Hipq | Sequence[Hipq] = (), *, tokens: Mapping[str, tuple[str, str]] | None = None,
    authenticate: Authenticate | None = None, mask: Collection[str] = (), read_only: bool = False,
    waiter: Waiter | None = None,
) -> Dashboard:  # fmt: skip
    """An ASGI application that shows this instance, or several of one database:
    `fastapi_app.mount("/hipq", hipq.dashboard.asgi(app, ...))`. `waiter`: a `hipq.waiter.Waiter` whose messages it
    shows, too, or alone: that needs no instance.

    Who may come in: `tokens={"ann": ("admin", "a long secret")}`, else $HIPQ_DASHBOARD_TOKENS; or your application says
    who somebody is: `authenticate`, plain or async, takes the ASGI scope and returns a `Visitor`, a role or None."""
    gate = gate_of(tokens, is_hosted=authenticate is not None)
    apps = [app] if isinstance(app, Hipq) else app
    if waiter is None and not apps:
        raise Invalid("give the dashboard an instance to show, or waiter=")
    more = waiter_more(waiter, is_all=not apps) if waiter else None
    return Dashboard(Site(apps, mask=mask, read_only=read_only, gate=gate, more=more), authenticate)


def waiter_more(waiter: Waiter, *, is_all: bool) -> More:
    from hipq.dashboard.waiter_pages import pages_of  # imported late: most have no waiter

    return pages_of(waiter, is_all=is_all)


class Dashboard:
    def __init__(self, site: Site, authenticate: Authenticate | None = None) -> None:
        self.site = site
        self.live = Live(site)
        self._authenticate = authenticate
        self._threads = ThreadPoolExecutor(THREADS, "hipq-dashboard")

    def stop(self) -> None:
        """End the streams to those who look: the server is about to stop."""
        self.live.stop()

    def has(self, path: str) -> bool:
        """Whether there is something at this path; another application has the rest."""
        return path == STREAM or static_reply(path, "") is not None or self.site.has(path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            reply = await self._reply(scope, receive, send)
            if reply is not None:
                await _send(send, reply)

    async def _reply(self, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        """None: it was a stream, which has ended."""
        asked = visit_of(scope)
        if file := static_reply(asked.path, asked.asked("v")):
            return file
        visit = await self.admitted(asked, scope)
        if visit.path == STREAM and visit.method == "GET" and visit.visitor.role is not Role.NOBODY:
            return await self._stream(visit, lambda: self._again(asked, scope), receive, send)
        complete = await with_form(visit, receive)
        if complete is None:
            return secured(Reply(413, b"this form is too large\n", "text/plain; charset=utf-8"))
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.site.reply, complete)

    async def _stream(
        self, visit: Visit, again: Callable[[], Awaitable[Visitor]], receive: Receive, send: Send
    ) -> Reply | None:
        try:
            await self.live.stream(visit, receive, send, again)
        except Refused as refused:
            return secured(Reply(refused.status, f"{refused.sentence}\n".encode(), "text/plain; charset=utf-8"))
        return None

    async def admitted(self, visit: Visit, scope: Scope) -> Visit:
        """The visit, with who it is: nobody, if nobody says otherwise."""
        who = await hosted(self._authenticate, scope) if self._authenticate else None
        return self.site.gate.admit(visit, who)

    async def _again(self, visit: Visit, scope: Scope) -> Visitor:
        """Who it is by now."""
        return (await self.admitted(visit, scope)).visitor

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """The first visit opens the database: there is nothing to start."""
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return self.stop()


async def _send(send: Send, reply: Reply) -> None:
    named = [("content-type", reply.type), ("content-length", str(len(reply.body))), *reply.headers]
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
