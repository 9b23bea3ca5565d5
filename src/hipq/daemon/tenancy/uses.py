"""When tokens were used last. Who lets a request in only adds to a set; about once a minute the daemon writes down who
is in it. So of each token there is one write a minute at most, and none on the way of a request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from hipq.errors import HipqError

if TYPE_CHECKING:
    from hipq.stores.protocols import Store

KIND: Final = "token use"
"""The kind of the notes: one of each tenant, with the moments by the ids of its tokens."""
KEPT: Final = 200
"""Tokens of one tenant of which it is remembered: twice as many as it can have."""

_load: Final = msgspec.json.Decoder(dict[str, int]).decode


class TokenUses:
    """For any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._used = set[tuple[str, str]]()
        """The tenants and ids of tokens that were used since the last `save`."""

    def add(self, tenant: str, token_id: str) -> None:
        self._used.add((tenant, token_id))

    def save(self) -> None:
        used = set[tuple[str, str]]()
        while self._used:
            used.add(self._used.pop())  # one at a time: others add to it meanwhile
        by_tenant = defaultdict[str, list[str]](list)
        for tenant, token_id in used:
            by_tenant[tenant].append(token_id)
        try:
            now = self._store.now() if used else 0
            for tenant, ids in by_tenant.items():
                self._store.change_note(KIND, tenant, partial(_written, ids, now))
        except HipqError:
            self._used |= used  # the next time
            raise

    def known(self) -> Mapping[str, Mapping[str, int]]:
        """The moments by tenant and id of the token."""
        return {tenant: _load(text) for tenant, text in self._store.notes(KIND).items()}


def _written(ids: Collection[str], now: int, before: str) -> str:
    found = _load(before or "{}")
    found |= {one: max(now, found.get(one, 0)) for one in ids}  # another daemon may have seen it later
    newest = sorted(found, key=lambda one: found[one])[-KEPT:]
    return msgspec.json.encode({one: found[one] for one in newest}).decode()
