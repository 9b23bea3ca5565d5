"""Who may use a daemon: tenants, their tokens, their weight and their quotas. Kept in the store, shared by its daemons.

A tenant is a note of kind "tenant", which has its tokens. The entry "*" is no tenant: its tokens are operators'.
"""

from __future__ import annotations

import builtins
import hmac
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Set
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from hipq.daemon.tenancy.tokens import ALL_TENANTS, FORGOTTEN, OVERLAP, Caller, Token, new_token, rotated, token_json
from hipq.daemon.tenancy.uses import TokenUses
from hipq.errors import Conflict, Invalid, NotFound, shown
from hipq.job.names import whole
from hipq.job.when import to_datetime
from hipq.stores.protocols import Store

KIND: Final = "tenant"
FRESH: Final = 1.0
"""Seconds after which what is known is looked up again: a revoked token is good for no longer than that."""
TOKENS: Final = 100
"""Tokens one tenant may have."""
RESERVED: Final = frozenset({
    "v1", "health", "ready", "metrics", "openapi", "openapi.json", "docs", "dashboard", "static", "login", "logout",
    "callbacks", "favicon.ico", "robots.txt", "tenants", "tokens", "audit", "whoami",
})  # fmt: skip
"""What stands where a tenant does in a path, and is none."""

_NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9_.]{1,60}")
_JOBTYPE: Final = re.compile(r"(?!\.+\Z)[A-Za-z0-9_.-]{1,200}")
MOST: Final = {"waiting": 10**12, "running": 10**6, "bytes": 10**15, "rate": 10**6, "kept": 10**15, "requests": 10**6}


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


class Tenant(msgspec.Struct, frozen=True):
    name: str
    weight: int = 1
    quotas: Quotas = Quotas()
    tokens: tuple[Token, ...] = ()
    made: int = 0
    removed: int = 0
    """When it was removed; its name is not given away, since jobs of it may still be there."""


_load: Final = msgspec.json.Decoder(Tenant).decode


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
        self.store = store
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
        self.removed: Set[str] = frozenset()
        """Tenants that were there once."""
        self.uses = TokenUses(store)

    # -- changing ---------------------------------------------------------------------------------------------------
    def add(self, name: str, *, weight: int = 1, quotas: Quotas | None = None, again: bool = False) -> Tenant:
        """A new tenant, as yet without a token. With `again` one that was removed comes back."""
        new = _checked(Tenant(tenant_name(name), weight, quotas or Quotas(), (), self.store.now()))

        def change(before: Tenant | None) -> Tenant:
            if before is not None and not before.removed:
                raise Conflict(f"there is a tenant {name} already")
            if before is not None and not again:
                raise Conflict(
                    f"a tenant {name} was removed, and its jobs, handlers and secrets may still be here: whoever gets "
                    "the name gets them too"
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

    def token(
        self, tenant: str, name: str = "", roles: Iterable[str] | None = None, expires: int = 0
    ) -> tuple[Token, str]:
        """A new token of a tenant, or of ALL_TENANTS: what is kept of it, and the token itself, which is not."""
        now = self.store.now()
        new, secret = new_token(tenant, name, roles, now, expires)

        def change(before: Tenant | None) -> Tenant:
            owner = (before or Tenant(ALL_TENANTS, made=now)) if tenant == ALL_TENANTS else _there(before, tenant)
            kept = [one for one in owner.tokens if not one.expires or one.expires > now - FORGOTTEN]
            if len(kept) >= TOKENS:
                raise Conflict(f"{_called(tenant)} has {TOKENS} tokens already: revoke those that are not needed")
            return replace(owner, tokens=(*kept, new))

        self._change(tenant, change)
        return new, secret

    def rotate(self, tenant: str, token_id: str, overlap: float = OVERLAP) -> tuple[Token, str]:
        """A new token that may do what this one may, which is good for `overlap` seconds more: so nobody is shut out
        while the new one is brought to where the old one is used."""
        now, made = self.store.now(), builtins.list[tuple[Token, str]]()

        def change(before: Tenant | None) -> Tenant:
            owner = _there(before, tenant)
            old = _one_of(owner, token_id)
            if old.expires and old.expires <= now:
                raise Conflict(f"token {token_id} has expired: create another one")
            older, new, secret = rotated(old, now, overlap)
            made[:] = [(new, secret)]
            return replace(owner, tokens=(*(older if one is old else one for one in owner.tokens), new))

        self._change(tenant, change)
        return made[0]

    def revoke(self, tenant: str, token_id: str) -> None:
        """Its token is good for nothing: here at once, at other daemons within a second."""

        def change(before: Tenant | None) -> Tenant:
            owner = _there(before, tenant)
            gone = _one_of(owner, token_id)
            return replace(owner, tokens=tuple(one for one in owner.tokens if one is not gone))

        self._change(tenant, change)

    def remove(self, name: str) -> Tenant:
        """It is no tenant any more, and has no tokens. Its jobs stay, and those that wait still run."""
        removed = self.store.now()
        return self._change(tenant_name(name), lambda before: replace(_there(before, name), tokens=(), removed=removed))

    def _change(self, name: str, change: Callable[[Tenant | None], Tenant]) -> Tenant:
        with self._lock:
            text = self.store.change_note(
                KIND, name, lambda before: msgspec.json.encode(change(_load(before) if before else None)).decode()
            )
            self.looked = -1e9  # what is known here is not true any more
        return _load(text)

    # -- looking ----------------------------------------------------------------------------------------------------
    def get(self, name: str) -> Tenant:
        """As the store has it now; NotFound."""
        return _there(_all(self.store.notes(KIND)).get(name), name)

    def list(self) -> list[Tenant]:
        """All that were not removed, by name; ALL_TENANTS is not one."""
        found = _all(self.store.notes(KIND))
        return [found[name] for name in sorted(found) if name != ALL_TENANTS and not found[name].removed]

    def tokens(self, tenant: str = "") -> builtins.list[dict[str, Any]]:
        """The tokens of a tenant, or all there are, the operators' first: as people see them."""
        found, uses = _all(self.store.notes(KIND)), self.uses.known()
        if tenant and tenant != ALL_TENANTS:
            _there(found.get(tenant), tenant)
        return [
            token_json(name, token, uses.get(name, {}).get(token.id, 0))
            for name in sorted(found) if tenant in ("", name) for token in found[name].tokens
        ]  # fmt: skip

    def held(self, token_id: str) -> tuple[str, Token]:
        """The token with this id, and the tenant that has it, or ALL_TENANTS; NotFound."""
        for name, tenant in _all(self.store.notes(KIND)).items():
            for token in tenant.tokens:
                if token.id == token_id:
                    return name, token
        raise NotFound(f"there is no token with the id {shown(token_id)}")

    def look(self) -> Known:
        """Ask the store."""
        with self._lock:
            began = self._steady()
            self.texts = self.store.notes(KIND)
            self.recall(self.texts)
            self.looked = began
            return self.latest

    def recall(self, texts: Mapping[str, str]) -> None:
        """These are as the store had them: what counts until it is asked."""
        found = _all(texts)
        there = {name: tenant for name, tenant in found.items() if not tenant.removed}
        self.removed = found.keys() - there.keys()
        callers = [Caller.of(name, token) for name in there for token in there[name].tokens]
        there.pop(ALL_TENANTS, None)
        self.latest = Known(there, {caller.digest: caller for caller in callers})

    def caller(self, token: bytes) -> Caller | None:
        """Whose token this is, as far as is known here; None if it is nobody's, or has expired."""
        digest = sha256(token).digest()
        found = self.latest.callers.get(digest)
        if found is None or not hmac.compare_digest(found.digest, digest) or not found.is_good:
            return None
        self.uses.add(found.tenant, found.token.id)
        return found

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
        "tokens": len(tenant.tokens),
    }


def _checked(tenant: Tenant) -> Tenant:
    whole(tenant.weight, "weight", 1, 1000)
    for what, most in MOST.items():
        whole(getattr(tenant.quotas, what), what, 0, most)
    return tenant


def _all(texts: Mapping[str, str]) -> dict[str, Tenant]:
    return {name: _load(text) for name, text in texts.items() if text}


def _there(tenant: Tenant | None, name: str) -> Tenant:
    if tenant is None or tenant.removed:
        raise NotFound(f"there is no {_called(name)}" if name == ALL_TENANTS else f"there is no tenant {shown(name)}")
    return tenant


def _one_of(tenant: Tenant, token_id: str) -> Token:
    for token in tenant.tokens:
        if token.id == token_id:
            return token
    raise NotFound(f"{_called(tenant.name)} has no token {shown(token_id)}")


def _called(name: str) -> str:
    return "operator's token" if name == ALL_TENANTS else f"tenant {name}"
