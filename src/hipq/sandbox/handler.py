"""What a stranger's handler is, what it is given, and what comes back from it."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from hipq.errors import Invalid, shown

LANGUAGES: Final = ("python", "node", "php", "shell", "http")
MOST_SOURCE: Final = 1_000_000
"""Bytes of a handler, all its parts together."""
MOST_DATA: Final = 16 << 20
"""Bytes a job may return."""
MOST_URL: Final = 8_000
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
"""A jobtype, an engine id."""


class Handler(msgspec.Struct, frozen=True):
    """One version of the code of one jobtype."""

    id: str
    tenant: str
    type: str
    lang: str
    body: str
    """A function's body; for http, the URL."""
    eid: str = ""
    """Jobtypes of one tenant with the same language and engine id share contexts. '' is the jobtype itself."""
    before: str = ""
    """Runs once, when the handler is first loaded in a context."""
    beforeEach: str = ""  # noqa: N815 the seed's name, as it stands in JSON
    """Runs before each batch."""
    afterEach: str = ""  # noqa: N815
    """Runs after each batch."""
    dt: int = 0
    """When it was added: microseconds since 1970."""
    deleted: int = 0
    """When its type was left without a handler, if this is the version that ran then."""
    waits: bool = False
    """Its status 202 says that a request is out, and the job waits for the answer. Else 202 is ok, like any 2xx."""

    @property
    def home(self) -> tuple[str, str, str]:
        """Whose contexts it may run in: never another tenant's."""
        return self.tenant, self.lang, self.eid or self.type


class ContextJob(msgspec.Struct, frozen=True):
    """A job to be run."""

    id: str
    payload: bytes
    attempt: int
    seconds: float
    """How long it may execute."""
    key: str = ""
    """What tells it from an earlier run of the same job, which may still be about to end."""

    @property
    def name(self) -> str:
        """By which it is abandoned or withdrawn."""
        return self.key or self.id


class JobReport(msgspec.Struct):
    """How a job went."""

    id: str
    status: int
    """100..599, never 3xx."""
    data: bytes = b""
    spawned: list[tuple[str, bytes]] = []
    """The jobs it asked for: jobtype and payload."""
    log: str = ""
    """The end of what it printed otherwise."""
    error: str = ""
    crashed: bool = False
    """Its context died, or had to be killed, under it."""
    retry_after: float = 0.0
    """Seconds after which it wants to be asked again; 0 = it has not said."""
    seconds: float = 0.0
    """Its own time, and its part of what was done for the whole batch."""


def check(handler: Handler) -> None:
    """Refuse what can never run. Whether the code is right only its language knows."""
    if handler.lang not in LANGUAGES:
        raise Invalid(f"there is no language {shown(handler.lang)}; there are {', '.join(LANGUAGES)}")
    if not NAME.fullmatch(handler.type):
        raise Invalid(f"{shown(handler.type)} is no jobtype: 1 to 200 letters, digits, '_', '.' and '-'")
    if handler.eid and not NAME.fullmatch(handler.eid):
        raise Invalid(f"{shown(handler.eid)} is no engine id: up to 200 letters, digits, '_', '.' and '-'")
    for name in ("id", "tenant"):
        _text(name, getattr(handler, name), MOST_URL)
        if not getattr(handler, name):
            raise Invalid(f"a handler needs its {name}")
    total = 0
    for name in ("body", "before", "beforeEach", "afterEach"):
        total += _text(name, getattr(handler, name), MOST_SOURCE)
    if total > MOST_SOURCE:
        raise Invalid(f"a handler may have {MOST_SOURCE:,} bytes of source; this one has {total:,}")
    if not handler.body.strip():
        raise Invalid("a handler needs a body")
    if handler.lang == "http":
        if handler.before or handler.beforeEach or handler.afterEach:
            raise Invalid("an http handler is a URL: it has no before, beforeEach and afterEach")
        parsed(handler.body)


def _text(name: str, value: object, most: int) -> int:
    """How many bytes it has, if it is text that every store and every language can take."""
    if not isinstance(value, str):
        raise Invalid(f"a handler's {name} is text, not {shown(value)}")
    if "\0" in value:
        raise Invalid(f"a handler's {name} must not contain NUL")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Invalid(f"a handler's {name} contains half a character, which is not UTF-8") from None
    if size > most:
        raise Invalid(f"a handler's {name} may have {most:,} bytes; this one has {size:,}")
    return size


def parsed(url: str) -> SplitResult:
    """The parts of a URL a job may be posted to."""
    if len(url) > MOST_URL:
        raise Invalid(f"a URL may have {MOST_URL:,} characters; this one has {len(url):,}")
    if not url.isascii() or re.search(r"[\x00-\x20\x7f\\]", url):
        raise Invalid(f"{shown(url)} is no URL: spaces, backslashes and letters beyond ASCII must be escaped")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Invalid(f"{shown(url)} is no URL: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise Invalid(f"{shown(url)} is no URL a job can be posted to: it must begin with http:// or https://")
    if not parts.hostname or port == 0:
        raise Invalid(f"{shown(url)} names no host to connect to")
    if "@" in parts.netloc:
        raise Invalid("a URL must not contain a user name or a password: it is shown to whoever may see the handler")
    return parts
