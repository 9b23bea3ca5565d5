"""The headers that every reply has: what a browser may do with it, and who may keep it."""

from __future__ import annotations

import re
from typing import Final

from hipq.dashboard.visit import Reply

_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
SECURITY: Final = (
    ("content-security-policy", _CSP),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
_NOT_PLAIN: Final = re.compile(r"[^ -~]")


def secured(reply: Reply, *, cookies: tuple[str, ...] = ()) -> Reply:
    """The reply with these headers and cookies. Nobody keeps it, unless it says for how long.

    A header may name what a tenant has named, as a download does: a line break in there would begin another header."""
    own = tuple((name, _NOT_PLAIN.sub("?", value)) for name, value in reply.headers)
    more = tuple(("set-cookie", cookie) for cookie in cookies)
    if not any(name == "cache-control" for name, _ in reply.headers):
        more += (("cache-control", "no-store"),)
    return reply._replace(headers=(*own, *SECURITY, *more))
