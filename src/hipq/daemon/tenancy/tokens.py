"""What a token is: whose it is, what it may do, and until when. Of a token only the SHA-256 is kept.

A role opens some routes: the table of routes says which. A token of a tenant opens them for that tenant, one of an
operator for all.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from hashlib import sha256
from secrets import token_hex, token_urlsafe
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hipq.errors import Invalid, shown
from hipq.job.when import SECOND, to_datetime

ALL_TENANTS: Final = "*"
"""Whose tokens an operator's are: no tenant's, and for every tenant."""
OVERLAP: Final = 86_400.0
"""Seconds for which a token that was rotated is still good, unless somebody says otherwise."""
FORGOTTEN: Final = 30 * 86_400 * SECOND
"""Microseconds after which a token that has expired is not listed any more."""


class Role(StrEnum):
    """What a token may do."""

    POST = "post"
    READ = "read"
    DEPLOY = "deploy"
    OPERATE = "operate"
    METRICS = "metrics"
    ADMIN = "admin"


ABOUT: Final[Mapping[Role, str]] = {
    Role.POST: "add jobs, and bring answers",
    Role.READ: "look at jobs, results, queues, events, handlers and schedules",
    Role.DEPLOY: "set and delete handlers, and read them",
    Role.OPERATE: "everything of `read`; cancel, retry and requeue jobs; change cron schedules",
    Role.METRICS: "scrape `/metrics`",
    Role.ADMIN: "everything, tenants, tokens and the audit log too",
}
TENANT_ROLES: Final = (Role.POST, Role.READ, Role.DEPLOY, Role.OPERATE)
"""What the token of a tenant may have, and has if nobody says less."""
_INCLUDED: Final[Mapping[Role, Collection[Role]]] = {Role.OPERATE: (Role.READ,), Role.ADMIN: tuple(Role)}


class Token(msgspec.Struct, frozen=True):
    """What is kept of a token."""

    id: str
    sha256: str
    made: int
    name: str = ""
    """What it is for, or who has it: for people, and the audit log."""
    roles: tuple[Role, ...] = ()
    expires: int = 0
    """The moment from which it is good for nothing; 0 = never."""
    lifetime: int = 0
    """Microseconds from when it was made until it was to expire; one that was rotated may expire sooner. 0 = never."""

    @property
    def label(self) -> str:
        """How the audit log calls it: a name is anybody's to choose, so the id is there too."""
        token = f"token {self.id}" if self.id else ""
        return f"{self.name} ({token})" if self.name and token else self.name or token


class Caller(NamedTuple):
    """Whose token it is, and what it may do."""

    tenant: str
    """ALL_TENANTS: it is an operator's."""
    token: Token
    digest: bytes
    """The SHA-256 of it."""
    roles: frozenset[Role]
    """Those that it has, with those that they include."""

    @classmethod
    def of(cls, tenant: str, token: Token) -> Caller:
        included = {one for role in token.roles for one in (role, *_INCLUDED.get(role, ()))}
        return cls(tenant, token, bytes.fromhex(token.sha256), frozenset(included))

    @property
    def is_operator(self) -> bool:
        return self.tenant == ALL_TENANTS

    @property
    def is_good(self) -> bool:
        """Whether its time is not over yet."""
        return not self.token.expires or time.time_ns() // 1000 < self.token.expires

    @property
    def name(self) -> str:
        """Who it is, for the audit log."""
        return self.token.label


def new_token(
    tenant: str, name: str, roles: Iterable[str] | None, now: int, expires: int = 0
) -> tuple[Token, str]:  # fmt: skip
    """What is kept of a new token, and the token itself, which is not. Without roles it has all that it can have."""
    if len(name) > 200 or not name.isprintable():
        raise Invalid("a token's name must have at most 200 characters, all of them printable")
    if expires and expires <= now:
        raise Invalid(f"a token must expire after now, not at {to_datetime(expires).isoformat()}")
    usual = (Role.ADMIN,) if tenant == ALL_TENANTS else TENANT_ROLES
    lifetime = expires - now if expires else 0
    return _made(Token("", "", now, name, usual if roles is None else _checked(tenant, roles), lifetime=lifetime), now)


def rotated(token: Token, now: int, overlap: float) -> tuple[Token, Token, str]:
    """The old one, which is good for so many seconds more at most; a new one that may do the same for as long as the
    old one was meant to; and the new token itself."""
    until = now + round(overlap * SECOND)
    new, secret = _made(token, now)
    return replace(token, expires=min(token.expires or until, until)), new, secret


def _made(like: Token, now: int) -> tuple[Token, str]:
    secret = f"hipq_{token_urlsafe(32)}"  # 256 bits
    expires = now + like.lifetime if like.lifetime else 0
    return replace(
        like, id=token_hex(6), sha256=sha256(secret.encode()).hexdigest(), made=now, expires=expires
    ), secret  # fmt: skip


def _checked(tenant: str, roles: Iterable[str]) -> tuple[Role, ...]:
    found = []
    for role in roles:
        if role not in list(Role):
            raise Invalid(f"a token's role is one of {', '.join(Role)}, not {shown(role)}")
        if tenant != ALL_TENANTS and role not in TENANT_ROLES:
            raise Invalid(
                f"the role {role} is for all tenants (--all-tenants; over HTTP, leave `tenant` out): a tenant's token "
                f"has {', '.join(TENANT_ROLES)}"
            )
        found.append(Role(role))
    if not found:
        raise Invalid(f"a token needs a role, one of {', '.join(Role)}")
    return tuple(role for role in Role if role in found)


def token_json(tenant: str, token: Token, used: int = 0) -> dict[str, Any]:
    """A token as people see it: nothing that opens a door."""
    return {
        "id": token.id,
        "tenant": None if tenant == ALL_TENANTS else tenant,
        "name": token.name or None,
        "roles": list(token.roles),
        "made": to_datetime(token.made),
        "expires": to_datetime(token.expires) if token.expires else None,
        "used": to_datetime(used) if used else None,
    }
