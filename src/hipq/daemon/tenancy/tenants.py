"""Who may use a daemon: tenants, their tokens, their weight and their quotas. Kept in the store, shared by its daemons.

A tenant is a note of kind "tenant". Of a token only the SHA-256 is kept: what was shown once is not to be had again.
The entry "*" is nobody's: its tokens may act for every tenant.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from secrets import token_hex, token_urlsafe
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from hipq.errors import Conflict, Invalid, NotFound, shown
from hipq.job.names import whole
from hipq.job.when import to_datetime
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
    """Jobs that have not ended, and answers that no job has taken."""
    running: int = 0
    """Jobs that run at once, on all daemons."""
    bytes: int = 0
    """Bytes of jobs that have not ended, and of answers that no job has taken."""
    rate: int = 0
    """Jobs and answers that come in a second, at each daemon."""
    kept: int = 0
    """Bytes of jobs that have ended: payloads, results, histories."""
    requests: int = 0
    """Other requests in a second, at each daemon: looks, lists, changes, handlers."""


class Token(msgspec.Struct, frozen=True):
    """What is kept of a token."""

    id: str
    sha256: str
    made: int
    note: str = ""


class Tenant(msgspec.Struct, frozen=True):
    name: str
    weight: int = 1
    quotas: Quotas = Quotas()
    tokens: tuple[Token, ...] = ()
    made: int = 0
    removed: int = 0
    """When it was removed; its name is not given away, since jobs of it may still be there."""


_load: Final = msgspec.json.Decoder(Tenant).decode


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
    """Callers by the SHA-256 of their token."""


def is_tenant_name(value: str) -> bool:
    return _NAME.fullmatch(value) is not None and value not in RESERVED


def is_jobtype_name(value: str) -> bool:
    return _JOBTYPE.fullmatch(value) is not None


def tenant_name(value: str) -> str:
    if not isinstance(value, str) or not is_tenant_name(value):
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


class Tenants:
    """The tenants of a store. Verbs that change them go to the store at once; `known` looks once a second."""

    def __init__(self, store: Store, steady: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._steady = steady
        self._lock = threading.Lock()
        """Held while the store is asked: an older view must not replace a newer one, without whose tenants their quotas
        would not count."""
        self.latest = Known({}, {})
        """What was found last, however long ago."""
        self.texts: Mapping[str, str] = {}
        """The same, as the store has it."""
        self.looked = -1e9
        """When that look began."""

    # -- changing ---------------------------------------------------------------------------------------------------
    def add(self, name: str, *, weight: int = 1, quotas: Quotas | None = None, again: bool = False) -> Tenant:
        """A new tenant, as yet without a token. With `again` one that was removed comes back."""
        new = _checked(Tenant(tenant_name(name), weight, quotas or Quotas(), (), self._store.now()))

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
            heavy = tenant.weight if weight is None else weight
            return _checked(replace(tenant, weight=heavy, quotas=replace(tenant.quotas, **given)))

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
            return replace(tenant, tokens=(*tenant.tokens, new))

        self._change(name, change)
        return new, secret

    def revoke(self, name: str, token_id: str) -> None:
        """Its token is good for nothing: here at once, at other daemons within a second."""

        def change(before: Tenant | None) -> Tenant:
            tenant = _there(before, name)
            left = tuple(token for token in tenant.tokens if token.id != token_id)
            if len(left) == len(tenant.tokens):
                raise NotFound(f"{_called(name)} has no token {shown(token_id)}")
            return replace(tenant, tokens=left)

        self._change(name, change)

    def remove(self, name: str) -> Tenant:
        """It is no tenant any more, and has no tokens. Its jobs stay, and those that wait still run."""
        removed = self._store.now()
        return self._change(tenant_name(name), lambda before: replace(_there(before, name), tokens=(), removed=removed))

    def _change(self, name: str, change: Callable[[Tenant | None], Tenant]) -> Tenant:
        with self._lock:
            text = self._store.change_note(
                KIND, name, lambda before: msgspec.json.encode(change(_load(before) if before else None)).decode()
            )
            self.looked = -1e9  # what is known here is not true any more
        return _load(text)

    # -- looking ----------------------------------------------------------------------------------------------------
    def get(self, name: str) -> Tenant:
        """As the store has it now; NotFound."""
        return _there(_all(self._store.notes(KIND)).get(name), name)

    def list(self) -> list[Tenant]:
        """All that were not removed, by name; ADMIN is not one."""
        found = _all(self._store.notes(KIND))
        return [found[name] for name in sorted(found) if name != ADMIN and not found[name].removed]

    def look(self) -> Known:
        """Ask the store."""
        with self._lock:
            began = self._steady()
            self.texts = self._store.notes(KIND)
            self.recall(self.texts)
            self.looked = began
            return self.latest

    def recall(self, texts: Mapping[str, str]) -> None:
        """These are as the store had them: what counts until it is asked."""
        there = {name: tenant for name, tenant in _all(texts).items() if not tenant.removed}
        tokens = [(name, token, bytes.fromhex(token.sha256)) for name in there for token in there[name].tokens]
        there.pop(ADMIN, None)
        self.latest = Known(there, {digest: Caller(name, token.id, digest) for name, token, digest in tokens})

    @property
    def is_fresh(self) -> bool:
        return self._steady() - self.looked < FRESH

    def known(self) -> Known:
        """What was true at most a second ago: for threads that may wait for the store."""
        return self.latest if self.is_fresh else self.look()


def described(tenant: Tenant) -> dict[str, Any]:
    """A tenant as people see it: nothing that opens a door."""
    return {
        "tenant": tenant.name,
        "weight": tenant.weight,
        **asdict(tenant.quotas),
        "made": to_datetime(tenant.made),
        "tokens": [
            {"id": token.id, "made": to_datetime(token.made), "note": token.note or None} for token in tenant.tokens
        ],
    }


def _checked(tenant: Tenant) -> Tenant:
    whole(tenant.weight, "weight", 1, 1000)
    for what, most in _MOST.items():
        whole(getattr(tenant.quotas, what), what, 0, most)
    return tenant


def _all(texts: Mapping[str, str]) -> dict[str, Tenant]:
    return {name: _load(text) for name, text in texts.items() if text}


def _there(tenant: Tenant | None, name: str) -> Tenant:
    if tenant is None or tenant.removed:
        raise NotFound(f"there is no {_called(name)}" if name == ADMIN else f"there is no tenant {shown(name)}")
    return tenant


def _called(name: str) -> str:
    return "admin token" if name == ADMIN else f"tenant {name}"
