"""A tenant's handler, the jobs it is given, and the reports it returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from hipq.errors import Invalid, shown
from hipq.sandbox.policy import Policy, check_policy

LANGUAGES: Final = ("python", "node", "php", "shell", "http")
MOST_SOURCE: Final = 1_000_000
"""Bytes of a handler, all its parts together."""
MOST_DATA: Final = 16 << 20
"""Bytes a job may return."""
MOST_URL: Final = 8_000
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
"""The form of a job type's name and of an engine id."""


class Handler(msgspec.Struct, frozen=True):
    """One version of the code of one job type."""

    id: str
    tenant: str
    type: str
    lang: str
    body: str
    """The body of a function; for http, the URL."""
    eid: str = ""
    """Job types of one tenant with the same language and engine id share contexts. "" means the job type itself."""
    before: str = ""
    """Code that runs once, when the handler is first loaded in a context."""
    beforeEach: str = ""  # noqa: N815 a name of the HTTP interface
    """Code that runs before each batch."""
    afterEach: str = ""  # noqa: N815
    """Code that runs after each batch."""
    dt: int = 0
    """When the handler was added, in microseconds since 1970."""
    deleted: int = 0
    """When the type's handler was deleted, in the version that ran until then."""
    waits: bool = False
    """Whether status 202 means that the job sent a request and waits for the answer. Otherwise 202 is ok."""
    policy: Policy = Policy()

    @property
    def home(self) -> tuple[str, str, str]:
        """Tenant, language and engine id: the contexts that the handler may use, never another tenant's."""
        return self.tenant, self.lang, self.eid or self.type


class ContextJob(msgspec.Struct, frozen=True):
    """A job to be run."""

    id: str
    payload: bytes
    attempt: int
    seconds: float
    """Seconds the job may execute."""
    key: str = ""
    """A value that differs from an earlier run of the same job, which may still be about to end."""
    printed: Callable[[bytes], None] | None = None
    """Is called with whole lines of its log, as they come, in the context's thread."""

    @property
    def name(self) -> str:
        """The name by which the job is abandoned or withdrawn."""
        return self.key or self.id


class JobReport(msgspec.Struct):
    """How a job went."""

    id: str
    status: int
    """A status from 100 to 599, never 3xx."""
    data: bytes = b""
    spawned: list[tuple[str, bytes]] = []
    """The jobs it added: job type and payload."""
    log: str = ""
    """The end of its other output."""
    error: str = ""
    crashed: bool = False
    """Whether its context died, or had to be killed, while the job ran."""
    retry_after: float = 0.0
    """Seconds after which it wants to run again; 0 = not said."""
    seconds: float = 0.0
    """Its own time, and its share of the time spent for the whole batch."""


OnStart = Callable[[ContextJob], None]
"""Called as each job of a batch begins."""
OnEnd = Callable[[JobReport], None]
"""Called once for each job that began, as soon as it ends."""
Sign = Callable[[ContextJob], Mapping[str, str]]
"""The headers by which whoever gets a job's payload can tell who has sent it."""


def unsigned(_: ContextJob) -> Mapping[str, str]:
    return {}


def check(handler: Handler) -> None:
    """Refuse a handler that can never run. Only its language knows whether its code is right."""
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
    parts = ("body", "before", "beforeEach", "afterEach")
    total = sum(_text(name, getattr(handler, name), MOST_SOURCE) for name in parts)
    if total > MOST_SOURCE:
        raise Invalid(f"a handler may have {MOST_SOURCE:,} bytes of source; this one has {total:,}")
    if not handler.body.strip():
        raise Invalid("a handler needs a body")
    if handler.lang == "http":
        if handler.before or handler.beforeEach or handler.afterEach:
            raise Invalid("an http handler is a URL: it has no before, beforeEach and afterEach")
        parsed(handler.body)
    check_policy(handler.policy, handler.lang)


def _text(name: str, value: object, most: int) -> int:
    """The bytes of a text that every store and every language can take."""
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
    """The parts of a URL that a job may be posted to."""
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
