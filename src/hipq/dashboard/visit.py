"""A visit and its reply: what a page is asked and what it says, whatever server it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup

from hipq.errors import Invalid, shown

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


def role_of(role: str | Role) -> Role:
    """A role by its name: view, operate or admin."""
    names = {one.name.lower(): one for one in Role if one is not Role.NOBODY}
    if isinstance(role, Role):
        return role
    if not isinstance(role, str) or role not in names:
        raise Invalid(f"a visitor's role is one of {', '.join(names)}, not {shown(role)}")
    return names[role]


class Visitor(NamedTuple):
    name: str
    """Who it is, for the audit log."""
    role: Role


NOBODY: Final = Visitor("nobody", Role.NOBODY)
"""Who has not said who it is."""


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
    is_https: bool = False
    csrf: str = ""
    """What its forms must send back, as the field `csrf` or the header `x-csrf`; "" = it can change nothing."""
    by_program: bool = False
    """Whether it came with its token in a header that no browser sends by itself: no page of another site can be behind
    it."""
    cookies: tuple[str, ...] = ()
    """Cookies to set in the reply."""

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
        """What every form has in it: whose it is, and which (see `hipq.dashboard.once`). Renderings that visitors share
        have neither: live.js puts both in."""
        fields = Markup('<input type="hidden" name="csrf" value="{}"><input type="hidden" name="once" value="{}">')
        return fields.format(self.csrf, token_urlsafe(12) if self.csrf else "")

    @property
    def is_fragment(self) -> bool:
        """Whether only the main part of the page is asked for: live.js does, to put what has changed in place."""
        return "x-fragment" in self.headers

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
    details: Mapping[str, object] = {}
    """What the audit log is to have of a change, beside who did it to what: numbers, filters, names. No payload, and no
    secret."""


def redirect(where: str, details: Mapping[str, object] | None = None) -> Reply:
    """Go there by GET: what follows a form that was sent."""
    location = quote(where, safe="!#$%&'()*+,/:;=?@[]~")  # a line break would begin another header
    return Reply(303, b"", headers=(("location", location),), details=details or {})


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
