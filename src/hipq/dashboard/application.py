"""`asgi(app)`: the dashboard as an ASGI application, to be mounted in another one or run alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs

from hipq.app import Hipq
from hipq.dashboard.live import Live
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Refused, Reply, Role, Visit, Visitor

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_STATIC: Final = {
    "dashboard.css": "text/css; charset=utf-8", "dashboard.js": "text/javascript; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8", "htmx.min.js": "text/javascript; charset=utf-8",
    "uPlot.iife.min.js": "text/javascript; charset=utf-8",
    "uPlot.min.css": "text/css; charset=utf-8", "LICENSES.txt": "text/plain; charset=utf-8",
}  # fmt: skip
_FORM: Final = 1 << 20
"""Bytes that a form may have."""


def asgi(
    app: Hipq | Sequence[Hipq], *, tokens: Mapping[str, tuple[str, str]] | None = None,  # noqa: ARG001
    mask: Collection[str] = (), read_only: bool = False,
) -> Dashboard:  # fmt: skip
    """An ASGI application that shows this instance, or several of one database:
    `fastapi_app.mount("/hipq", hipq.dashboard.asgi(app))`."""
    apps = [app] if isinstance(app, Hipq) else app
    return Dashboard(Site(apps, mask=mask, read_only=read_only))


class Dashboard:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.live = Live(site)

    def stop(self) -> None:
        """End the streams to those who look: the server is about to stop."""
        self.live.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1000})
        base, path = _place(scope)
        if path.startswith("/static/") and path.removeprefix("/static/") in _STATIC:
            return await _send(send, _static(path.removeprefix("/static/")))
        body = await _body(receive)
        visit = Visit(
            method=scope["method"],
            path=path,
            base=base,
            query=parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True),
            form=parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True),
            headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]},
            visitor=Visitor("anybody", Role.ADMIN),
            address=(scope.get("client") or ("", 0))[0],
        )
        if path == "/live" and visit.method == "GET":
            return await self._stream(visit, receive, send)
        return await _send(send, await asyncio.to_thread(self.site.reply, visit))

    async def _stream(self, visit: Visit, receive: Receive, send: Send) -> None:
        try:
            await self.live.stream(visit, receive, send, lambda: self._again(visit))
        except Refused as refused:
            await _send(send, Reply(refused.status, refused.sentence.encode(), "text/plain; charset=utf-8"))

    async def _again(self, visit: Visit) -> Visitor:
        """Who a visitor is now."""
        return visit.visitor

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.stop()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


def _place(scope: Scope) -> tuple[str, str]:
    """Under which path it is mounted, and the path behind that. Servers and frameworks hand over the whole path."""
    base = scope.get("root_path", "").rstrip("/")
    path: str = scope["path"]
    if base and (path == base or path.startswith(f"{base}/")):
        path = path[len(base) :]
    return base, path or "/"


def _static(name: str) -> Reply:
    body = (files("hipq.dashboard") / "static" / name).read_bytes()
    return Reply(200, body, _STATIC[name], (("cache-control", "max-age=3600"),))


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more and len(body) <= _FORM:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def _send(send: Send, reply: Reply) -> None:
    named = [("content-type", reply.type), ("content-length", str(len(reply.body))), *reply.headers]
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
