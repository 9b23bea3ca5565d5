"""How much room a tenant's handlers take: so many types, and so many bytes of all their versions that are kept.

A note for each tenant has the bytes of each of its types. It is written before a handler is set, and after one is
deleted: who dies in between leaves it too large, which the next change of that type mends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from hipq.daemon.tenancy.tenants import KIND as TENANTS
from hipq.daemon.tenancy.tenants import Tenant
from hipq.errors import Conflict
from hipq.stores.notes import note
from hipq.stores.protocols import Store

KIND: Final = "handlers of"
MOST: Final = 1000
"""Handlers of one tenant;"""
MOST_BYTES: Final = 64 << 20
"""and bytes of them."""

Sizes = dict[str, int]
_sizes = msgspec.json.Decoder(Sizes)


class Space:
    def __init__(self, store: Store, found: Callable[[str], Sizes]) -> None:
        """`found` looks at all there is: for a tenant whose handlers were set by an older program."""
        self._store = store
        self._found = found

    def take(self, tenant: str, type: str, size: int) -> None:
        """For all versions of this one. Conflict if that is too much."""
        most = self._most(tenant)

        def change(sizes: Sizes) -> None:
            if type not in sizes and len(sizes) >= MOST:
                raise Conflict(
                    f"the tenant has {MOST:,} handlers already: delete those that are not needed, with their versions"
                )
            more = size - sizes.get(type, 0)
            if more > 0 and sum(sizes.values()) + more > most:
                raise Conflict(
                    f"the tenant's handlers, with the versions that are kept, may have {most:,} bytes, and would "
                    f"have {sum(sizes.values()) + more:,}: delete those that are not needed, with their versions"
                )
            sizes[type] = size

        self._change(tenant, change)

    def _most(self, tenant: str) -> int:
        """Bytes it may have: no more than its quota of what is kept."""
        text = note(self._store, TENANTS, tenant)
        kept = msgspec.json.decode(text, type=Tenant).quotas.kept if text else 0
        return min(kept or MOST_BYTES, MOST_BYTES)

    def give(self, tenant: str, type: str) -> None:
        self._change(tenant, lambda sizes: sizes.pop(type, None))

    def _change(self, tenant: str, change: Callable[[Sizes], object]) -> None:
        known = note(self._store, KIND, tenant)
        old = {} if known else self._found(tenant)

        def write(text: str) -> str:
            sizes = _sizes.decode(text) if text else dict(old)
            change(sizes)
            return msgspec.json.encode(sizes).decode()

        self._store.change_note(KIND, tenant, write)
