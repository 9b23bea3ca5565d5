"""Secrets of tenants: written by them, given to their handlers, shown to nobody. And the keys that sign calls of URLs.

A note of kind "secrets" for each tenant has them all, encrypted with the operator's key (`keys`); so does one of kind
"signing keys".
"""

from __future__ import annotations

import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from secrets import token_bytes, token_hex
from typing import Any, Final

import msgspec

from hipq.daemon.handlers.keys import Sealed, SecretKeys
from hipq.daemon.tenancy.tenants import tenant_name
from hipq.errors import CannotRun, Conflict, HipqError, Invalid, NotFound
from hipq.job.when import to_datetime
from hipq.sandbox.handler import ContextJob, Handler, Sign, unsigned
from hipq.sandbox.policy import check_name, check_value
from hipq.sandbox.secrets import LEAST, NO_SECRETS, Secrets
from hipq.stores.notes import note
from hipq.stores.protocols import Store
from hipq.transports.webhooks import PREFIX, signed

SECRETS: Final = "secrets"
SIGNING: Final = "signing keys"
MOST: Final = 100
"""Secrets of one tenant."""
LIVE: Final = 2
"""Signing keys that sign at once: so a target can change from one to the other when it likes."""
FRESH: Final = 1.0
"""Seconds after which what a tenant has is looked up again."""

Kept = dict[str, Sealed]
_kept: Final = msgspec.json.Decoder(Kept)


class TenantSecrets:
    """The secrets and signing keys of a store. Any thread may ask."""

    def __init__(self, store: Store, keys: SecretKeys, steady: Callable[[], float] = time.monotonic) -> None:
        self._store, self._keys, self._steady = store, keys, steady
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[Kept, float]] = {}
        """By kind and tenant, and when it was read."""
        self._opened: dict[str, tuple[Sealed, bytes]] = {}

    # -- secrets ----------------------------------------------------------------------------------------------------
    def set(self, tenant: str, name: str, value: str) -> dict[str, Any]:
        """Handlers have it from their next batch on: here at once, at other daemons within a second."""
        check_name(name, "a secret")
        check_value(value, f"the secret {name}")
        if max(map(len, map(str.strip, value.splitlines())), default=0) < LEAST:
            raise Invalid(
                f"a secret has {LEAST} characters at least, in one line: a shorter one could not be masked in a log"
            )
        sealed = self._keys.seal(value.encode(), _about(SECRETS, tenant, name), self._store.now())

        def change(kept: Kept) -> None:
            if name not in kept and len(kept) >= MOST:
                raise Conflict(f"the tenant has {MOST} secrets already: delete those that are not needed")
            kept[name] = sealed

        self._change(SECRETS, tenant, change)
        return _shown("name", name, sealed)

    def delete(self, tenant: str, name: str) -> None:
        self._drop(SECRETS, tenant, name, f"the tenant has no secret {name!r:.60}")

    def names(self, tenant: str) -> list[dict[str, Any]]:
        """The names of all, and when each was set."""
        return [_shown("name", name, one) for name, one in sorted(self._read(SECRETS, tenant).items())]

    def of(self, handler: Handler) -> Secrets:
        """Those that a handler names. CannotRun if one is not there."""
        if not handler.policy.secrets:
            return NO_SECRETS
        kept = self._fresh(SECRETS, handler.tenant)
        if missing := [name for name in handler.policy.secrets if name not in kept]:
            raise CannotRun(f"the secret {missing[0]} is not set: `hipq secret set {missing[0]}`")
        return Secrets(
            {name: self._open(SECRETS, handler.tenant, name, kept[name]).decode() for name in handler.policy.secrets}
        )

    # -- signing ----------------------------------------------------------------------------------------------------
    def signing_keys(self, tenant: str) -> list[dict[str, Any]]:
        """The keys that sign, the newest last: their ids, and when each was made."""
        return [_shown("id", name, one) for name, one in self._read(SIGNING, tenant).items()]

    def new_signing_key(self, tenant: str) -> dict[str, Any]:
        """A key that signs from now on, beside the one before; an older one is dropped. Its secret is in what is
        returned, and is not to be had again."""
        secret, name = token_bytes(32), token_hex(4)
        sealed = self._keys.seal(secret, _about(SIGNING, tenant, name), self._store.now())

        def change(kept: Kept) -> None:
            kept[name] = sealed
            for old in list(kept)[:-LIVE]:
                del kept[old]

        self._change(SIGNING, tenant, change)
        return {**_shown("id", name, sealed), "secret": f"{PREFIX}{b64encode(secret).decode()}"}

    def drop_signing_key(self, tenant: str, name: str) -> None:
        self._drop(SIGNING, tenant, name, f"the tenant has no signing key {name!r:.60}")

    def sign(self, tenant: str) -> Sign:
        """How the calls of a tenant's URLs are signed: with each of its keys, or not at all if it has none."""
        kept = self._fresh(SIGNING, tenant)
        if not kept:
            return unsigned
        keys = [self._open(SIGNING, tenant, name, one) for name, one in reversed(kept.items())]

        def headers(task: ContextJob) -> Mapping[str, str]:
            return signed(keys, task.id, int(time.time()), task.payload)

        return headers

    # -- the operator -----------------------------------------------------------------------------------------------
    def rekey(self) -> int:
        """Encrypt all that is not encrypted with the first key anew, with that; how many these were."""
        changed = 0
        for kind in (SECRETS, SIGNING):
            for tenant in self._store.notes(kind):
                changed += self._rekey(kind, tenant)
        return changed

    def _rekey(self, kind: str, tenant: str) -> int:
        old: list[str] = []

        def change(kept: Kept) -> None:
            old[:] = [name for name, one in kept.items() if not self._keys.is_current(one)]
            for name in old:
                about = _about(kind, tenant, name)
                kept[name] = self._keys.seal(self._keys.open(kept[name], about), about, kept[name].made)

        self._change(kind, tenant, change)
        return len(old)

    # -- notes ------------------------------------------------------------------------------------------------------
    def _open(self, kind: str, tenant: str, name: str, sealed: Sealed) -> bytes:
        about = _about(kind, tenant, name)
        known = self._opened.get(about)
        if known is None or known[0] != sealed:
            self._opened[about] = known = (sealed, self._keys.open(sealed, about))
        return known[1]

    def _drop(self, kind: str, tenant: str, name: str, missing: str) -> None:
        def change(kept: Kept) -> None:
            if kept.pop(name, None) is None:
                raise NotFound(missing)

        self._change(kind, tenant, change)
        self._opened.pop(_about(kind, tenant, name), None)

    def _change(self, kind: str, tenant: str, change: Callable[[Kept], object]) -> None:
        def write(text: str) -> str:
            kept = _loaded(text)
            change(kept)
            return msgspec.json.encode(kept).decode() if kept else ""

        self._store.change_note(kind, tenant_name(tenant), write)
        with self._lock:
            self._known.pop((kind, tenant), None)

    def _read(self, kind: str, tenant: str) -> Kept:
        return _loaded(note(self._store, kind, tenant_name(tenant)))

    def _fresh(self, kind: str, tenant: str) -> Kept:
        """As it was at most a second ago; as it was last, while the store is away."""
        now = self._steady()
        known = self._known.get((kind, tenant))
        if known is not None and now - known[1] < FRESH:
            return known[0]
        try:
            found = self._read(kind, tenant)
        except HipqError:
            if known is None:
                raise
            return known[0]
        with self._lock:
            self._known[kind, tenant] = (found, now)
        return found


def _about(kind: str, tenant: str, name: str) -> str:
    return f"{kind}/{tenant}/{name}"


def _shown(what: str, name: str, sealed: Sealed) -> dict[str, Any]:
    return {what: name, "made": to_datetime(sealed.made)}


def _loaded(text: str) -> Kept:
    return _kept.decode(text) if text else {}
