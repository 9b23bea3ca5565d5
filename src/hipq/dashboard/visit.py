"""A visit and its reply: what a page is asked and what it says, whatever server it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

if TYPE_CHECKING:
    from hipq.dashboard.site import Site


class Role(IntEnum):
    """What a visitor may do; each role may do what those before it may."""

    NOBODY = 0
    VIEW = 1
    OPERATE = 2
    """Cancel, retry, requeue and change jobs; pause queues; replay answers."""
    ADMIN = 3
    """Change limits, cron schedules, tenants and handlers, too."""


class Visitor(NamedTuple):
    name: str
    """Who it is, for the audit log."""
    role: Role


class Visit(NamedTuple):
    """One request."""

    method: str
    path: str
    """Behind the path under which the dashboard is mounted, from a slash on."""
    base: str
    """The path under which the dashboard is mounted, without a slash at its end: links begin with it."""
    query: Mapping[str, Sequence[str]]
    form: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    """Names are in lower case."""
    visitor: Visitor
    address: str = ""
    """The address it comes from."""
    params: Mapping[str, str] = {}
    """What stands in the path for the names in the route's pattern."""

    def asked(self, name: str, default: str = "") -> str:
        """A parameter of the query; the last one, if it is there more than once."""
        return self.query[name][-1] if self.query.get(name) else default

    def sent(self, name: str, default: str = "") -> str:
        """A field of the form."""
        return self.form[name][-1] if self.form.get(name) else default

    def may(self, role: str) -> bool:
        """Whether the visitor has this role, or a greater one."""
        return self.visitor.role >= Role[role.upper()]

    @property
    def csrf_field(self) -> Markup:
        """What every form has in it."""
        return Markup("")

    @property
    def is_fragment(self) -> bool:
        """Whether htmx asks, for a part of the page."""
        return "hx-request" in self.headers

    def link(self, path: str, **query: object) -> str:
        """The URL of one of the dashboard's pages. Parameters that are empty are left out."""
        given = [(name, value) for name, value in query.items() if value not in ("", None)]
        return f"{self.base}{path}" + (f"?{urlencode(given)}" if given else "")

    def linked(self, **changed: object) -> str:
        """The URL of this page with some parameters of its query changed; with "" or None, left out."""
        given: dict[str, object] = {name: values[-1] for name, values in self.query.items() if values}
        return self.link(self.path, **{**given, **changed})


class Reply(NamedTuple):
    status: int
    body: bytes
    type: str = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


def redirect(where: str) -> Reply:
    """Go there by GET: what follows a form that was sent."""
    return Reply(303, b"", headers=(("location", where),))


class Refused(Exception):
    """The visit cannot be served: a status, and a sentence for the page that says so."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class PageRoute(NamedTuple):
    """One page, or one thing that can be done. `role` is the least that a visitor must have."""

    method: str
    pattern: str
    """A path like "/jobs/{id}"; a name in braces stands for one segment."""
    role: Role
    reply: Callable[[Site, Visit], Reply]
    """It reads the database, and runs in a thread. Invalid, NotFound and Conflict become pages that say so."""
