"""Who may use a daemon: tenants, their tokens, their weight and their quotas. Kept in the store, shared by its daemons.

A tenant is a note of kind "tenant". Of a token only the SHA-256 is kept: what was shown once is not to be had again.
The entry "*" is nobody's: its tokens may act for every tenant.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from secrets import token_hex, token_urlsafe
from typing import Any, Final, NamedTuple

import msgspec

from hipq.errors import Conflict, Invalid, NotFound, shown
from hipq.job.names import whole
from hipq.stores.protocols import Store

KIND: Final = "tenant"
ADMIN: Final = "*"
FRESH: Final = 1.0
"""Seconds after which what is known is looked up again: a revoked token is good for no longer than that."""
TOKENS: Final = 100
"""Tokens one tenant may have."""
RESERVED: Final = frozenset({
    "v1", "health", "ready", "metrics", "openapi", "openapi.json", "docs", "dashboard", "static", "login", "logout",
    "callbacks", "favicon.ico", "robots.txt",
})  # fmt: skip
"""What stands where a tenant does in a path, and is none."""

_NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9_.]{1,60}")
_JOBTYPE: Final = re.compile(r"(?!\.+\Z)[A-Za-z0-9_.-]{1,200}")
_MOST: Final = {"waiting": 10**12, "running": 10**6, "bytes": 10**15, "rate": 10**6, "kept": 10**15, "requests": 10**6}


class Quotas(msgspec.Struct, frozen=True):
    """What a tenant may have; 0 = as much as it likes."""

    waiting: int = 0
    """Jobs that have not ended, and answers that no job has taken;"""
    running: int = 0
    """jobs that run at once, on all daemons;"""
    bytes: int = 0
    """bytes of both;"""
    rate: int = 0
    """jobs and answers that come in a second, at each daemon;"""
    kept: int = 0
    """bytes of jobs that have ended: payloads, results, histories;"""
    requests: int = 0
    """other requests in a second, at each daemon: looks, lists, changes, handlers."""


class Token(msgspec.Struct, frozen=True):
    """What is kept of one."""

    id: str
    sha256: str
    made: int
    note: str = ""

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.sha256)


class Tenant(msgspec.Struct, frozen=True):
    name: str
    weight: int = 1
    quotas: Quotas = Quotas()
    tokens: tuple[Token, ...] = ()
    made: int = 0
    removed: int = 0
    """When it was removed; its name is not given away, since jobs of it may still be there."""


class Caller(NamedTuple):
    """Whose token it is."""

    tenant: str
    """ADMIN = nobody's: it may act for every tenant."""
    token: str
    digest: bytes

    @property
    def is_admin(self) -> bool:
        return self.tenant == ADMIN


class Known(NamedTuple):
    """What is known of all tenants, as it was at one moment."""

    tenants: Mapping[str, Tenant]
    callers: Mapping[bytes, Caller]
    """By the SHA-256 of their token."""


def tenant_name(value: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value) or value in RESERVED:
        raise Invalid(
            "a tenant's name must be 1 to 60 letters, digits, '_' or '.', not start with '.' and not be a word like v1 "
            f"or health, not {shown(value)}"
        )
    return value


def jobtype_name(value: str) -> str:
    """A jobtype. A version in it (`resize.v2`) makes it a task of its own."""
    if not isinstance(value, str) or not is_jobtype_name(value):
        raise Invalid(
            f"a job type must be 1 to 200 letters, digits, '_', '.' or '-', not only dots, not {shown(value)}"
        )
    return value


def is_tenant_name(value: str) -> bool:
    return _NAME.fullmatch(value) is not None and value not in RESERVED


def is_jobtype_name(value: str) -> bool:
    return _JOBTYPE.fullmatch(value) is not None


class Tenants:
    """The tenants of a store. Verbs that change them go to the store at once; `known` looks once a second."""

    def __init__(self, store: Store, steady: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._steady = steady
        self.latest = Known({}, {})
        """What was found last, however long ago."""
        self.texts: Mapping[str, str] = {}
        """The same, as the store has it."""
        self.looked = -1e9
        """When that look began."""

    # -- changing ---------------------------------------------------------------------------------------------------
    def add(self, name: str, *, weight: int = 1, quotas: Quotas | None = None, again: bool = False) -> Tenant:
        """A new tenant, as yet without a token. With `again` one that was removed comes back."""
        tenant_name(name)
        new = Tenant(name, checked_weight(weight), checked(quotas or Quotas()), (), self._store.now())

        def change(before: Tenant | None) -> Tenant:
            if before is not None and not before.removed:
                raise Conflict(f"there is a tenant {name} already")
            if before is not None and not again:
                raise Conflict(
                    f"a tenant {name} was removed, and its jobs may still be here: whoever gets the name gets them too"
                )
            return new

        return self._change(name, change)

    def set(self, name: str, *, weight: int | None = None, **quotas: int | None) -> Tenant:
        """Change its weight, or some of its quotas; None leaves one as it is."""
        given = {what: value for what, value in quotas.items() if value is not None}

        def change(before: Tenant | None) -> Tenant:
            tenant = _there(before, name)
            return msgspec.structs.replace(
                tenant,
                weight=tenant.weight if weight is None else checked_weight(weight),
                quotas=checked(msgspec.structs.replace(tenant.quotas, **given)),
            )

        return self._change(tenant_name(name), change)

    def token(self, name: str, note: str = "") -> tuple[Token, str]:
        """A new token of a tenant, or of ADMIN: what is kept of it, and the token itself, which is not."""
        if len(note) > 200 or not note.isprintable():
            raise Invalid("a token's note must have at most 200 characters, all of them printable")
        secret = f"hipq_{token_urlsafe(32)}"  # 256 bits
        new = Token(token_hex(4), sha256(secret.encode()).hexdigest(), self._store.now(), note)

        def change(before: Tenant | None) -> Tenant:
            tenant = (before or Tenant(ADMIN, made=new.made)) if name == ADMIN else _there(before, name)
            if len(tenant.tokens) >= TOKENS:
                raise Conflict(f"{_called(name)} has {TOKENS} tokens already: revoke those that are not needed")
            return msgspec.structs.replace(tenant, tokens=(*tenant.tokens, new))

        self._change(name, change)
        return new, secret

    def revoke(self, name: str, token_id: str) -> None:
        """Its token is good for nothing: here at once, at other daemons within a second."""

        def change(before: Tenant | None) -> Tenant:
            tenant = _there(before, name)
            left = tuple(token for token in tenant.tokens if token.id != token_id)
            if len(left) == len(tenant.tokens):
                raise NotFound(f"{_called(name)} has no token {shown(token_id)}")
            return msgspec.structs.replace(tenant, tokens=left)

        self._change(name, change)

    def remove(self, name: str) -> Tenant:
        """It is no tenant any more, and has no tokens. Its jobs stay, and those that wait still run."""
        removed = self._store.now()

        def change(before: Tenant | None) -> Tenant:
            return msgspec.structs.replace(_there(before, name), tokens=(), removed=removed)

        return self._change(tenant_name(name), change)

    def _change(self, name: str, change: Callable[[Tenant | None], Tenant]) -> Tenant:
        def write(text: str) -> str:
            return msgspec.json.encode(change(_loaded(text))).decode()

        found = _loaded(self._store.change_note(KIND, name, write))
        assert found is not None
        self.looked = -1e9  # what is known here is not true any more
        return found

    # -- looking ----------------------------------------------------------------------------------------------------
    def get(self, name: str) -> Tenant:
        """As the store has it now; NotFound."""
        return _there(self._all().get(name), name)

    def list(self) -> list[Tenant]:
        """All that were not removed, by name; ADMIN is not one."""
        found = self._all()
        return [found[name] for name in sorted(found) if name != ADMIN and not found[name].removed]

    def look(self) -> Known:
        """Ask the store."""
        began = self._steady()
        self.texts = self._store.notes(KIND)
        self.recall(self.texts)
        self.looked = began
        return self.latest

    def recall(self, texts: Mapping[str, str]) -> None:
        """These are as the store had them: what counts until it is asked."""
        found = {name: tenant for name, text in texts.items() if (tenant := _loaded(text))}
        there = {name: tenant for name, tenant in found.items() if not tenant.removed}
        callers = {
            token.digest: Caller(name, token.id, token.digest)
            for name, tenant in there.items()
            for token in tenant.tokens
        }
        there.pop(ADMIN, None)
        self.latest = Known(there, callers)

    @property
    def is_fresh(self) -> bool:
        return self._steady() - self.looked < FRESH

    def known(self) -> Known:
        """What was true at most a second ago: for threads that may wait for the store."""
        return self.latest if self.is_fresh else self.look()

    def _all(self) -> dict[str, Tenant]:
        return {name: found for name, text in self._store.notes(KIND).items() if (found := _loaded(text))}


def checked_weight(weight: int) -> int:
    return whole(weight, "weight", 1, 1000)


def checked(quotas: Quotas) -> Quotas:
    for what, most in _MOST.items():
        whole(getattr(quotas, what), what, 0, most)
    return quotas


def described(tenant: Tenant) -> dict[str, Any]:
    """A tenant as people see it: nothing that opens a door."""
    from hipq.job.when import to_datetime

    return {
        "tenant": tenant.name,
        "weight": tenant.weight,
        **msgspec.structs.asdict(tenant.quotas),
        "made": to_datetime(tenant.made),
        "tokens": [
            {"id": token.id, "made": to_datetime(token.made), "note": token.note or None} for token in tenant.tokens
        ],
    }


def _loaded(text: str) -> Tenant | None:
    return msgspec.json.decode(text, type=Tenant) if text else None


def _there(tenant: Tenant | None, name: str) -> Tenant:
    if tenant is None or tenant.removed:
        raise NotFound(f"there is no {_called(name)}" if name == ADMIN else f"there is no tenant {shown(name)}")
    return tenant


def _called(name: str) -> str:
    return "admin token" if name == ADMIN else f"tenant {name}"
