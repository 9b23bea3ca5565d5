"""What a tenant's jobs are run by. Versions of a handler are kept, and the newest runs.

A handler is a note of kind "handler", named tenant-type (a tenant has no "-"), whose value is the list of its versions.
Engines ask for it before every batch, so it is kept in memory: once a second one small note, the stamp, says whether
any handler of any tenant was changed.

A tenant has so many handlers, and so many bytes of all their versions. Another note for each tenant has the bytes of
each of its types. It is written before a handler is set and after one is purged: a daemon that dies in between leaves
it too large, which the next change of that type mends. One more has how many jobs of its types may run at a time; it is
written last, and a daemon that dies before has told nobody of the new version.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from secrets import token_hex
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from hipq.daemon.tenancy.tenants import KIND as TENANTS
from hipq.daemon.tenancy.tenants import Tenant, jobtype_name, tenant_name
from hipq.errors import Conflict, HipqError, Invalid, NotFound
from hipq.limits.tenants import BETWEEN
from hipq.sandbox.handler import Handler, check
from hipq.sandbox.policy import Policy
from hipq.stores.notes import note
from hipq.stores.protocols import Store

KIND: Final = "handler"
STAMP: Final = "handlers changed"
SIZES: Final = "handlers of"
LIMITS: Final = "handlers at a time"
KEPT: Final = 5
"""Versions of one handler that are kept."""
MOST: Final = 1000
"""Handlers of one tenant."""
MOST_BYTES: Final = 64 << 20
"""Bytes of one tenant's handlers, if its quota of what is kept is not smaller."""
FRESH: Final = 1.0
"""Seconds between two looks at the stamp."""
OLD: Final = 60.0
"""Seconds after which a handler is read again anyhow: whoever changed it may have died before the stamp said so."""
HANDLERS: Final = 10_000
"""Handlers that are kept in memory."""

PARTS: Final = ("body", "before", "beforeEach", "afterEach")
Versions = tuple[Handler, ...]
Sizes = dict[str, int]
_versions = msgspec.json.Decoder(Versions)
_sizes = msgspec.json.Decoder(Sizes)


class Handlers:
    """The handlers of a store. Any thread may ask."""

    def __init__(
        self, store: Store, steady: Callable[[], float] = time.monotonic,
        limits_changed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._store = store
        self._limits_changed = limits_changed
        self._steady = steady
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Handler | None, float]] = {}
        """By name, and when it was read."""
        self._stamp = ""
        self._looked = -1e9

    # -- changing ---------------------------------------------------------------------------------------------------
    def set(
        self, tenant: str, type: str, wrong_with: Callable[[Handler], str] = lambda _: "", /, **parts: Any
    ) -> Handler:
        """A new version, which runs from now on: here at once, at other daemons within a second. `parts` are eid, lang,
        before, beforeEach, body, afterEach, waits and policy. `wrong_with` says what is wrong with the code. Conflict
        if the tenant has too many."""
        handler = self.made(tenant, type, parts)
        if wrong := wrong_with(handler):
            raise Invalid(wrong)

        def change(before: Versions) -> Versions:
            after = max([handler.dt, *(one.dt + 1 for one in before[:1])])  # a clock may have gone back
            return (replace(handler, dt=after), *before)[:KEPT]

        self._take_room(tenant, type, len(_dumped(change(tuple(self.versions(tenant, type))))))
        return self._change(tenant, type, change)[0]

    def made(self, tenant: str, type: str, parts: dict[str, Any]) -> Handler:
        """A version that is not kept, and does not run. Invalid if it never could."""
        _name(tenant, type)
        handler = _made(tenant, type, self._store.now(), parts)
        check(handler)
        return handler

    def delete(self, tenant: str, type: str, *, purge: bool = False) -> None:
        """Its jobs are retried from now on until they time out. Its versions are kept, and can be brought back by
        `restore`; with `purge` they are not, and take no room any more. NotFound if there is none."""
        now = self._store.now()

        def change(before: Versions) -> Versions:
            if not before or (before[0].deleted and not purge):
                raise NotFound("there is no handler for this job type")
            return () if purge else (replace(before[0], deleted=now), *before[1:])

        self._change(tenant, type, change)
        if purge:
            self._change_sizes(tenant, lambda sizes: sizes.pop(type, None))

    def restore(self, tenant: str, type: str, version: str) -> Handler:
        """A version that is kept runs again from now on, under its id. NotFound if it is not kept."""
        now = self._store.now()

        def change(before: Versions) -> Versions:
            for one in before:
                if one.id == version:
                    others = [other for other in before if other.id != version]
                    dt = max([now, *(other.dt + 1 for other in before)])
                    return (replace(one, dt=dt, deleted=0), *others)
            raise NotFound("this handler has no such version")

        return self._change(tenant, type, change)[0]

    def _change(self, tenant: str, type: str, change: Callable[[Versions], Versions]) -> Versions:
        name = _name(tenant, type)
        after = _loaded(self._store.change_note(KIND, name, lambda text: _dumped(change(_loaded(text)))))
        stamp = token_hex(8)
        self._forget(name)
        self._store.change_note(STAMP, "", lambda _: stamp)  # after the handler: else somebody reads the old one again
        self._forget(name)
        self._keep_limit(tenant, type)
        return after

    def _keep_limit(self, tenant: str, type: str) -> None:
        """Until it is what the newest version says: somebody else may change that at the same time."""
        while True:
            versions = _loaded(note(self._store, KIND, _name(tenant, type)))
            wanted = versions[0].policy.concurrency if versions and not versions[0].deleted else 0
            if _sizes_in(note(self._store, LIMITS, tenant)).get(type, 0) == wanted:
                return
            self._store.change_note(LIMITS, tenant, partial(_with_limit, type, wanted))
            self._limits_changed()

    def _take_room(self, tenant: str, type: str, size: int) -> None:
        """Room for all versions of one handler. Conflict if that is too much."""
        text = note(self._store, TENANTS, tenant)
        most = min((msgspec.json.decode(text, type=Tenant).quotas.kept if text else 0) or MOST_BYTES, MOST_BYTES)

        def change(sizes: Sizes) -> None:
            if type not in sizes and len(sizes) >= MOST:
                raise Conflict(
                    f"the tenant has {MOST:,} handlers already: delete those that are not needed, with their versions"
                )
            more, before = size - sizes.get(type, 0), sum(sizes.values())
            if more > 0 and before + more > most:
                raise Conflict(
                    f"the tenant's handlers, with the versions that are kept, may have {most:,} bytes, and would "
                    f"have {before + more:,}: delete those that are not needed, with their versions"
                )
            sizes[type] = size

        self._change_sizes(tenant, change)

    def _change_sizes(self, tenant: str, change: Callable[[Sizes], object]) -> None:
        """Where there is no note yet, an older program has set this tenant's handlers, and all of them are read."""
        start = f"{tenant}-"
        found = {} if note(self._store, SIZES, tenant) else self._store.notes(KIND, start)

        def write(text: str) -> str:
            old = {name[len(start) :]: len(versions.encode()) for name, versions in found.items()}
            sizes = _sizes.decode(text) if text else old
            change(sizes)
            return msgspec.json.encode(sizes).decode()

        self._store.change_note(SIZES, tenant, write)

    # -- asking -----------------------------------------------------------------------------------------------------
    def get(self, tenant: str, type: str) -> Handler | None:
        """The newest version, as it was at most a second ago; None if there is none."""
        now = self._steady()
        if now - self._looked >= FRESH:
            self._look(now)
        name = f"{tenant}-{type}"
        found = self._known.get(name)
        if found is not None and now - found[1] < OLD:
            return found[0]
        return self._read(name, now, found)

    def versions(self, tenant: str, type: str) -> list[Handler]:
        """All that are kept, newest first, as the store has them."""
        return list(_loaded(note(self._store, KIND, _name(tenant, type))))

    def list(self, tenant: str) -> list[Handler]:
        """The newest of each of a tenant's types, as the store has them."""
        found = self._store.notes(KIND, f"{tenant_name(tenant)}-")
        newest = [_loaded(found[name])[0] for name in sorted(found)]
        return [one for one in newest if not one.deleted]

    def sizes(self) -> dict[str, Sizes]:
        """By tenant, the types that have a handler, or versions of one that was deleted, and the bytes of all versions.
        It reads no handler, and one note for each tenant."""
        return {tenant: _sizes.decode(text) for tenant, text in self._store.notes(SIZES).items() if text}

    def limits(self) -> dict[str, int]:
        """By lane, how many jobs may run at a time, of the types whose handlers say so."""
        texts = self._store.notes(LIMITS).items()
        return {f"{tenant}{BETWEEN}{name}": most for tenant, text in texts for name, most in _sizes_in(text).items()}

    def _look(self, now: float) -> None:
        """Whether anything was changed anywhere. One thread asks, others go on with what is known."""
        if not self._lock.acquire(blocking=not self._stamp):
            return
        try:
            if now - self._looked < FRESH:
                return
            stamp = note(self._store, STAMP, "") or "none"
            if stamp != self._stamp:
                self._known = {}
            self._stamp, self._looked = stamp, now
        except HipqError:
            self._looked = now  # the store is away: what is known must do
            if not self._stamp:
                raise
        finally:
            self._lock.release()

    def _read(self, name: str, now: float, before: tuple[Handler | None, float] | None) -> Handler | None:
        known = self._known
        try:
            versions = _loaded(note(self._store, KIND, name))
        except HipqError:
            if before is None:
                raise
            return before[0]
        found = versions[0] if versions and not versions[0].deleted else None
        if len(known) >= HANDLERS:
            known.clear()
        known[name] = (found, now)  # of the dictionary it was asked for: one that came since may know better
        return found

    def _forget(self, name: str) -> None:
        known = dict(self._known)
        known.pop(name, None)
        self._known = known  # another one: a thread that is just reading it writes what it finds into the old


def _name(tenant: str, type: str) -> str:
    return f"{tenant_name(tenant)}-{jobtype_name(type)}"


def _made(tenant: str, type: str, now: int, parts: dict[str, Any]) -> Handler:
    known = ("eid", "lang", *PARTS, "waits", "policy")
    for part, value in parts.items():
        if part not in known:
            raise Invalid(f"a handler has {', '.join(known)}, and no {part!r:.40}")
        if part == "waits" and not isinstance(value, bool):
            raise Invalid("a handler's waits must be true or false")
        if part == "policy" and not isinstance(value, Policy):
            raise Invalid("a handler's policy must be a Policy")
        if part not in ("waits", "policy") and not isinstance(value, str):
            raise Invalid(f"a handler's {part} must be text")
    if not parts.get("lang"):
        raise Invalid("a handler needs a language: lang, or method in the URL's query")
    return Handler(token_hex(8), tenant, type, **{"body": "", **parts}, dt=now)


def _with_limit(type: str, most: int, text: str) -> str:
    left = {name: limit for name, limit in {**_sizes_in(text), type: most}.items() if limit}
    return msgspec.json.encode(left).decode() if left else ""


def _sizes_in(text: str) -> Sizes:
    return _sizes.decode(text) if text else {}


def _loaded(text: str) -> Versions:
    return _versions.decode(text) if text else ()


def _dumped(versions: Versions) -> str:
    return msgspec.json.encode(versions).decode() if versions else ""
