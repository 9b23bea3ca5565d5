"""A store whose jobs may move to another while programs use it (`hipq move`): they go on with that one, unawares."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from hipq.errors import Moved, StoreUnavailable
from hipq.stores.base import Store
from hipq.stores.password import without_password

PATIENT: Final = frozenset({"enqueue", "answer", "queue", "change_rules"})
"""What programs ask for that have nobody else to try again for them, as engines do."""
PATIENCE: Final = 60.0
"""Seconds these wait while jobs are being moved."""
_PAUSE: Final = 0.05
_said: set[str] = set()
"""Moves that this program was told of."""


class Following:
    """Every verb of the store. One that finds a signpost has done nothing, so it is done again where that points."""

    def __init__(self, store: Store, there: Callable[[str], Any], is_moving: Callable[[], bool]) -> None:
        self._store = store
        self._there = there
        self._is_moving = is_moving
        self._left: list[Store] = []
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found) or name.startswith("_"):
            return found

        def verb(*given: Any, **more: Any) -> Any:
            store = self._store
            try:
                return getattr(store, name)(*given, **more)
            except Moved as moved:
                self._follow(store, moved)
            except StoreUnavailable:
                if name not in PATIENT or not self._is_moving():
                    raise
                return self._patiently(verb, given, more)
            return getattr(self._store, name)(*given, **more)

        setattr(self, name, verb)  # found without us the next time
        return verb

    def _patiently(self, verb: Callable[..., Any], given: Any, more: Any) -> Any:
        until = time.monotonic() + PATIENCE
        while self._is_moving() and time.monotonic() < until:
            time.sleep(_PAUSE)
        return verb(*given, **more)

    def _follow(self, store: Store, moved: Moved) -> None:
        with self._lock:
            if self._store is not store:
                return  # another thread was first
            self._store = followed(store.url, moved, self._there)
            self._left.append(store)
        store.ring()  # who waits there waits in vain

    def close(self) -> None:
        for store in (self._store, *self._left):
            store.close()


def followed(url: str, moved: Moved, there: Callable[[str], Any]) -> Store:
    """The store that a signpost points to. The signpost is the proof that the move was complete."""
    try:
        store = there(moved.url)
        store.arrived(moved.move)
    except Exception as error:
        raise StoreUnavailable(
            f"the jobs of {url} have moved to {without_password(moved.url)}, and this program cannot go there: {error}"
        ) from error
    if moved.move not in _said:
        _said.add(moved.move)
        logging.getLogger("hipq").warning(
            "the jobs of %s have moved to %s: say so in HIPQ_DATABASE_URL, or where you name it",
            url, without_password(moved.url),
        )  # fmt: skip
    found: Store = store
    return found
