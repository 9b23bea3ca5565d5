"""From an ASGI request to a visit, which nobody has asked yet who it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qs, quote

from hipq.dashboard.visit import NOBODY, Role, Visit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
FORM: Final = 1 << 20
"""Bytes that a form may have;"""
LOGIN_FORM: Final = 1 << 14
"""and that of somebody who has not said who it is."""
_FIELDS: Final = 20_000


def visit_of(scope: Scope) -> Visit:
    """The visit, without its form. A token is taken out of the scope, because servers log the query with the reply."""
    root, path, query = scope.get("root_path", "").rstrip("/"), scope["path"], scope.get("query_string", b"")
    if root and (path == root or path.startswith(f"{root}/")):  # most servers and frameworks hand over the whole path
        path = path[len(root) :] or "/"
    if path == "/login" and b"token" in query:
        scope["query_string"] = b"..."
    return Visit(
        method=scope["method"],
        path=path,
        base=mounted(root),
        query=_fields(query.decode("latin-1")),
        form={},
        headers=_headers(scope),
        visitor=NOBODY,
        address=(scope.get("client") or ("", 0))[0],
        is_https=scope.get("scheme") == "https",
    )


async def with_form(visit: Visit, receive: Receive) -> Visit | None:
    """The visit with the form that it sends; None if that is too large, or is cut off."""
    most = LOGIN_FORM if visit.visitor.role is Role.NOBODY else FORM
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > most or message["type"] == "http.disconnect":
            return None
        more = message.get("more_body", False)
    return visit._replace(form=_fields(body.decode("utf-8", "replace")))


def mounted(root: str) -> str:
    """The path under which the dashboard is mounted, as it may stand in links and headers: where an application mounts
    by a pattern, a visitor has chosen a part."""
    path = quote(root.strip("/"), safe="/~")
    return f"/{path}" if path else ""


def _fields(text: str) -> dict[str, list[str]]:
    """None at all, if they are too many to be a form's."""
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        return {}


def _headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = (
            f"{headers[key]}; {text}" if key == "cookie" and key in headers else text
        )  # HTTP/2 has it in parts
    return headers
