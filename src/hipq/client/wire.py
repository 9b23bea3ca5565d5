"""httpx2, imported only when a client is made, and its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from hipq.client.replies import Response
from hipq.errors import Invalid

CONNECT_SECONDS: Final = 10.0


def httpx2() -> Any:
    try:
        import httpx2
    except ModuleNotFoundError:
        raise Invalid("hipq.client needs httpx2: pip install 'hipq[client]'") from None
    return httpx2


def options(url: str, token: str) -> dict[str, Any]:
    """The arguments of httpx2's client. Redirects are not followed, because the token would go along."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(f"a daemon's URL is like http://127.0.0.1:8080, not {url!r:.80}")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise Invalid("this is no token: hipq tenant token NAME makes one")
    headers = {"user-agent": "hipq", **({"authorization": f"Bearer {token}"} if token else {})}
    return {"base_url": url.rstrip("/"), "headers": headers, "follow_redirects": False}


def response(status: int, headers: Mapping[str, str], body: bytes) -> Response:
    return Response(status, {name.lower(): value for name, value in headers.items()}, body)
