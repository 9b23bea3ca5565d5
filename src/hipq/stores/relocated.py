"""A store whose jobs may move to another database while programs use it (`hipq move`). The programs go on there without
noticing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from hipq.errors import Invalid, Moved, StoreUnavailable
from hipq.stores.forwarding import Forwarding
from hipq.stores.password import without_password
from hipq.stores.protocols import Store

PATIENT: Final = frozenset({"enqueue", "answer", "queue", "change_rules"})
"""The verbs that are tried again here. Other verbs are for engines, which try again by themselves."""
LONGEST_MOVE: Final = 60.0
"""Seconds to try again while jobs are being moved."""
PAUSE: Final = 0.05
_said: set[str] = set()
"""The moves that this program has logged."""


class Destination(Store, Protocol):
    def arrived(self, move: str) -> None:
        """Jobs have moved here, and the signpost says so: from now on they may be used."""


class Following(Forwarding):
    """Follows a signpost: a verb that finds one has done nothing, so it is called again where the signpost points."""

    def __init__(self, store: Store, there: Callable[[str], Destination], is_moving: Callable[[], bool]) -> None:
        self._store = self._first = store
        self._there = there
        self._is_moving = is_moving
        self._closed = False
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        """Whatever is not a verb: the store's address, and what only its kind has."""
        return getattr(self._store, name)

    def now(self) -> int:
        """Without `_call`, which costs more than to look at a clock: no table is read, so there is no signpost."""
        return self._store.now()

    def _call(self, verb: str, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
        until = 0.0
        while True:
            store = self._store
            try:
                return getattr(store, verb)(*given, **more)
            except Moved as moved:
                self._follow(store, moved)
                if more.get("conn") is not None:
                    there = without_password(moved.url)
                    raise Invalid(
                        f"the jobs of {store.url} have moved to {there}: conn= must be a connection to that"
                    ) from None
            except StoreUnavailable:
                until = until or time.monotonic() + LONGEST_MOVE
                if not self._waits(verb, given, store) or time.monotonic() >= until:
                    raise
                time.sleep(PAUSE)

    def _waits(self, name: str, given: tuple[Any, ...], store: Store) -> bool:
        """Whether to try again: the file is locked because its jobs are being moved, and no engine would try again. (A
        `turn` of engine 0 is an operator's change.)"""
        patient = name in PATIENT or (name == "turn" and given[0] == 0)
        return patient and store is self._first and self._is_moving()

    def _follow(self, store: Store, moved: Moved) -> None:
        found: Store = followed(store.url, moved, self._there)  # not under the lock: it may take seconds
        with self._lock:
            if self._store is store and not self._closed:
                self._store, found = found, store
        if found is store:
            store.waker.notify()  # who waits there waits in vain
        else:
            found.close()  # another thread was first

    def close(self) -> None:
        with self._lock:
            self._closed = True
        for store in {id(store): store for store in (self._store, self._first)}.values():
            store.close()


def followed(url: str, moved: Moved, there: Callable[[str], Destination]) -> Store:
    """The store that a signpost points to. The signpost is the proof that the move was complete."""
    store = None
    try:
        store = there(moved.url)
        store.arrived(moved.move)
    except Exception as error:
        if store is not None:
            store.close()
        raise StoreUnavailable(
            f"the jobs of {url} have moved to {without_password(moved.url)}, and this program cannot go there: {error}"
        ) from error
    if moved.move not in _said:
        _said.add(moved.move)
        logging.getLogger("hipq").warning(
            "the jobs of %s have moved to %s: say so in HIPQ_DATABASE_URL, or where you name it",
            url, without_password(moved.url),
        )  # fmt: skip
    return store
