"""A shop with a dashboard, and browsers and programs that visit it: straight into the ASGI application."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from html import unescape
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

SECRETS: Final = {name: f"{name}-secret-of-24-letters" for name in ("vera", "otto", "ada")}
TOKENS: Final = {
    "vera": ("view", SECRETS["vera"]),
    "otto": ("operate", SECRETS["otto"]),
    "ada": ("admin", SECRETS["ada"]),
}
HTML: Final = {"accept": "text/html,*/*"}


class Got(NamedTuple):
    status: int
    pairs: list[tuple[str, str]]
    text: str

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.pairs)

    @property
    def location(self) -> str:
        return self.headers["location"]


async def _call(application: Any, scope: dict[str, Any], body: bytes) -> Got:
    coming: list[dict[str, Any]] = [{"type": "http.request", "body": body}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return coming.pop(0) if coming else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    start, end = sent
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
    return Got(start["status"], pairs, end["body"].decode())


def ask(
    application: Any, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b"",
    root: str = "", scheme: str = "http", address: str = "192.0.2.1", **more: Any,
) -> Got:  # fmt: skip
    """One request as a server hands it over."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http", "method": method, "path": root + path, "root_path": root, "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()],
        "scheme": scheme, "client": (address, 5), **more,
    }  # fmt: skip
    return asyncio.run(_call(application, scope, body))


class Browser:
    """It keeps cookies, and says what browsers say. `modern`: it sends Sec-Fetch-Site."""

    def __init__(self, application: Any, *, root: str = "", modern: bool = True, **more: Any) -> None:
        self.application, self.root, self.modern, self.more = application, root, modern, more
        self.cookies: dict[str, str] = {}
        self.csrf = ""

    def get(self, path: str, **headers: str) -> Got:
        return self._kept(self._ask(path, "GET", {}, headers))

    def post(self, path: str, csrf: str | None = None, origin: str = "http://hipq.example", site: str = "same-origin",
             **fields: str) -> Got:  # fmt: skip
        """Send a form, with the token of the page that was read last."""
        said = {"origin": origin, **({"sec-fetch-site": site} if self.modern else {})}
        body = {"csrf": self.csrf if csrf is None else csrf, **fields}
        return self._kept(self._ask(path, "POST", {name: one for name, one in body.items() if one}, said))

    def log_in(self, secret: str) -> Got:
        self.get("/login")
        return self.post("/login", token=secret)

    def _ask(self, path: str, method: str, fields: Mapping[str, str], more: Mapping[str, str]) -> Got:
        kept = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {**HTML, "host": "hipq.example", **more, **({"cookie": kept} if kept else {})}
        body = urlencode(fields).encode()
        return ask(self.application, path, method=method, headers=headers, body=body, root=self.root, **self.more)

    def _kept(self, got: Got) -> Got:
        for name, value in got.pairs:
            if name == "set-cookie":
                pair, *attributes = value.split("; ")
                key, _, one = pair.partition("=")
                self.cookies.pop(key, None)
                if "Max-Age=0" not in attributes:
                    self.cookies[key] = one
        if found := re.search(r'name="csrf" (?:value|content)="([^"]*)"', got.text):
            self.csrf = unescape(found[1])
        return got
