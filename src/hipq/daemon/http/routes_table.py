"""What a route is: a row of the table from which requests are served and the OpenAPI page is made, so none drifts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from hipq.daemon.http.job_json import Schema
from hipq.daemon.http.reply import HttpError
from hipq.daemon.http.request import LARGE, Body, Receive, kind_of, queried
from hipq.daemon.tenancy.tenants import jobtype_name
from hipq.daemon.tenancy.tokens import Role
from hipq.errors import Invalid, NotFound, shown
from hipq.job import names
from hipq.job.when import LATEST, SECOND, moment

if TYPE_CHECKING:
    from hipq.daemon.http.api import Api
    from hipq.daemon.http.reply import Reply
    from hipq.daemon.http.stream import Stream
    from hipq.daemon.tenancy.tokens import Caller

Who = Literal["anybody", "caller", "tenant", "operator"]

ID_LIMIT: Final = (1 << 63) - 1
_ID: Final = re.compile("[1-9][0-9]{0,18}")
_WHOLE: Final = re.compile("-?[0-9]{1,19}")
_SECONDS: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


WHEN: Final = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "number", "minimum": 0, "maximum": LATEST // SECOND}]
}


# -- what a URL's query may say --------------------------------------------------------------------------------------
class Query(NamedTuple):
    """One thing in the query: what it may be, and how it is read."""

    name: str
    about: str
    schema: Schema
    read: Callable[[str], Any]


def text(name: str, about: str, most: int = 500) -> Query:
    def read(value: str) -> str:
        if not 1 <= len(value) <= most or not value.isprintable():
            raise Invalid(f"{name} must have 1 to {most} characters, all of them printable")
        return value

    return Query(name, about, {"type": "string", "minLength": 1, "maxLength": most}, read)


def job_type(name: str, about: str) -> Query:
    return Query(name, about, TYPE, jobtype_name)


def number(name: str, about: str, least: int, most: int) -> Query:
    def read(value: str) -> int:
        if not _WHOLE.fullmatch(value):
            raise Invalid(f"{name} must be a whole number from {least} to {most}, not {shown(value)}")
        return names.whole(int(value), name, least, most)

    return Query(name, about, {"type": "integer", "minimum": least, "maximum": most}, read)


def seconds(name: str, about: str, most: float) -> Query:
    def read(value: str) -> float:
        if not _SECONDS.fullmatch(value) or float(value) > most:
            raise Invalid(f"{name} must be a number of seconds from 0 to {most:g}, not {shown(value)}")
        return float(value)

    return Query(name, about, {"type": "number", "minimum": 0, "maximum": most}, read)


def one_of(name: str, about: str, *values: str) -> Query:
    return Query(name, about, {"type": "string", "enum": list(values)}, lambda said: names.one_of(said, name, values))


def flag(name: str, about: str) -> Query:
    return Query(name, about, {"type": "boolean"}, lambda said: names.one_of(said, name, ("true", "false")) == "true")


def when(name: str, about: str) -> Query:
    return Query(name, about, WHEN, lambda said: read_moment(said, name))


def read_moment(said: str | float, name: str = "at") -> int:
    """Microseconds from ISO 8601 with a time zone, or from seconds since 1970."""
    if isinstance(said, str) and not _SECONDS.fullmatch(said):
        return moment(_iso(said, name), name)
    if not 0 <= float(said) <= LATEST / SECOND:
        raise Invalid(f"{name} must be between the years 1970 and 9999, not {shown(said)}")
    return round(float(said) * SECOND)


def _iso(said: str, name: str) -> datetime:
    for spelling in (said, "+".join(said.rsplit(" ", 1))):  # a + in a query that was not quoted is a space
        try:
            return datetime.fromisoformat(spelling)
        except ValueError:
            pass
    raise Invalid(f"{name} must be a moment like 2027-01-15T08:00:00+01:00, or seconds since 1970, not {shown(said)}")


# -- what a path may say ---------------------------------------------------------------------------------------------
TYPE: Final = {"type": "string", "pattern": "^(?!\\.+$)[A-Za-z0-9_.\\-]{1,200}$"}
PATH: Final[Mapping[str, tuple[str, Schema]]] = {
    "client": ("The tenant.", {"type": "string", "pattern": "^(?!\\.)[A-Za-z0-9_.]{1,60}$"}),
    "type": ("The job type.", TYPE),
    "tenant": ("The tenant.", {"type": "string", "pattern": "^(?!\\.)[A-Za-z0-9_.]{1,60}$"}),
    "token": ("The id of a token.", {"type": "string", "pattern": "^[0-9a-f]{1,40}$"}),
    "name": ("The name of a schedule.", TYPE),
    "id": ("The id of a job.", {"type": "string", "pattern": "^[1-9][0-9]{0,18}$"}),
    "version": ("The id of a version.", {"type": "string", "pattern": "^[0-9a-f]{1,40}$"}),
    "secret": ("The name of a secret.", {"type": "string", "pattern": "^(?!HIPQ_)[A-Za-z_][A-Za-z0-9_]{0,99}$"}),
    "signing_key": ("The id of a key.", {"type": "string", "pattern": "^[0-9a-f]{1,40}$"}),
    "key": ("The key of a job.", {"type": "string", "minLength": 1, "maxLength": names.KEY_LIMIT}),
}


class Accepts(NamedTuple):
    """What a body may be: a schema by Content-Type."""

    kinds: Mapping[str, Schema]
    required: bool = True


class Gives(NamedTuple):
    """One reply that a route has when all is well."""

    status: int
    about: str
    schema: Schema | None
    kind: str = "application/json"


class Route(NamedTuple):
    method: str
    path: str
    does: Callable[[Call], Awaitable[Reply | Stream]]
    about: str
    """The first sentence is its title."""
    gives: tuple[Gives, ...]
    accepts: Accepts | None = None
    query: tuple[Query, ...] = ()
    headers: tuple[Query, ...] = ()
    who: Who = "tenant"
    tag: str = "jobs"
    refuses: tuple[int, ...] = ()
    """Statuses of its own, beside those that every route may have."""
    adds: bool = False
    """What it adds counts for the tenant's quotas, and not that it was asked."""
    role: Role | None = None
    """The one role that opens it, if that does not follow from the rest."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of which a token must have one; none: every token will do, or the caller needs none."""
        if self.who in ("anybody", "caller"):
            return ()
        if self.role or self.who == "operator":
            return (self.role or Role.ADMIN,)
        if self.adds:
            return (Role.POST,)
        if self.tag == "handlers":
            return (Role.READ, Role.DEPLOY) if self.method == "GET" else (Role.DEPLOY,)
        return (Role.READ,) if self.method == "GET" else (Role.OPERATE,)

    @property
    def is_change(self) -> bool:
        """Whether who did this is to be found in the audit log: all that is not reading, nor adding jobs."""
        return self.method != "GET" and not self.adds

    @property
    def action(self) -> str:
        """What it does, in the words of its path: "job cancel" for one, "jobs cancel" for many, "handlers (put)"."""
        words = " ".join(re.findall(r"/(\w+)", self.path.removeprefix("/v1")))
        if "{id}" in self.path:
            words = words.replace("jobs", "job", 1)
        return words if self.method == "POST" else f"{words} ({self.method.lower()})"

    @property
    def pattern(self) -> str:
        """As Starlette writes it: a key may have slashes in it, and comes last."""
        return self.path.replace("{key}", "{key:path}")

    def parameters(self) -> Iterator[tuple[str, str, str, Schema]]:
        """What a request says beside its body: where (path, query or header), the name, what it is, its schema."""
        for name in re.findall(r"\{(\w+)\}", self.path):
            yield "path", name, *PATH[name]
        for where, several in (("query", self.query), ("header", self.headers)):
            for one in several:
                yield where, one.name, one.about, one.schema

    def refusals(self) -> list[int]:
        """The statuses of replies that are not what was wanted."""
        known = {400, 408, 413, 415, 431, 503, *self.refuses} | (set() if self.who == "anybody" else {401, 404})
        known |= {403} if self.roles else set()
        return sorted(known - {one.status for one in self.gives})


def read_query(route: Route, text: bytes) -> dict[str, Any]:
    """What the table says there may be, read; what is not in the query is not there."""
    known = {one.name: one for one in route.query}
    found = queried(text)
    for name in found:
        if name not in known:
            there = ", ".join(known) or "none"
            raise HttpError(400, f"there is no {shown(name)} in this URL's query; there are: {there}")
    return {name: known[name].read(value) for name, value in found.items()}


# -- one request -----------------------------------------------------------------------------------------------------
class Call:
    """A request that was let in: whose it is, and what it says."""

    def __init__(
        self, api: Api, route: Route, caller: Caller | None, params: Mapping[str, str], headers: Mapping[bytes, bytes],
        query: bytes, receive: Receive,
    ) -> None:  # fmt: skip
        self.api = api
        self.route = route
        self.caller = caller
        self.params = params
        self.tenant = params.get("client", "")
        self.type = params.get("type", "")
        self.id = int(params.get("id", 0))
        self.headers = headers
        self.kind = kind_of(headers)
        self.query = read_query(route, query)  # what is wrong with it is said before the body is read
        self.receive = receive
        self.body = Body(receive, api.limits, api.held, self.tenant, self.let_in)
        self.is_change = route.is_change
        self.details: dict[str, Any] = {}
        """What the audit log is to have of a change, beside who did it where. No payload, and no secret."""

    def header(self, name: bytes, most: int = 200) -> str:
        """A header as text one can print; "" if it is not there."""
        value = self.headers.get(name, b"").decode("latin-1").strip()
        if len(value) > most or not value.isascii() or not value.isprintable():
            raise HttpError(400, f"{name.decode()} must have at most {most} characters, all of them printable ASCII")
        return value

    async def reading(self, do: Callable[[bytes], Any], body: bytes) -> Any:
        """What takes its time if the body is large: in a thread then, since others are not to wait for that."""
        return do(body) if len(body) < LARGE else await self.blocking(do, body)

    async def blocking(self, do: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What may wait for the store, in a thread, when it is the tenant's turn."""
        return await self.api.turns.call(self.tenant, lambda: do(*arguments, **options))

    @asynccontextmanager
    async def staying(self) -> AsyncIterator[None]:
        """Around a long wait: there may be only so many, and nobody waits for who has gone. Behind it, whoever waited
        must still be let in: a token may have been revoked meanwhile."""
        await self.body.read()  # there is none, but who goes away is noticed only behind it
        with self.api.reader(self.tenant):
            yield
        await self.let_in()

    async def let_in(self) -> None:
        """HttpError if whoever calls is not let in any more."""
        await self.api.let_in(self.route, self.headers, self.tenant)


def check_params(params: Mapping[str, str]) -> None:
    """Say what is wrong with the parts of a path."""
    job_id = params.get("id")
    if job_id is not None and (not _ID.fullmatch(job_id) or int(job_id) > ID_LIMIT):
        raise NotFound("there is no such job")
    for name in ("type", "name"):
        if name in params:
            jobtype_name(params[name])
    if "key" in params:
        names.key(params["key"])
