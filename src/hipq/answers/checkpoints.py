"""Who of those that listen to one stream reads which part of it, and how far: a note in the database.

A claim lasts some seconds on the database's clock. It keeps two from doing the same work, no more than that: where they
do, after a pause, each answer is still used once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import Final
from uuid import uuid4

import msgspec

from hipq.stores.protocols import Store

KIND: Final = "places"
SECONDS: Final = 10.0
"""How long a claim lasts that nobody renews."""


class Checkpoint(msgspec.Struct, omit_defaults=True):
    position: str = ""
    owner: str = ""
    until: int = 0
    host: str = ""
    pid: int = 0

    def is_free(self, now: int, me: str) -> bool:
        if self.owner in ("", me) or self.until <= now:
            return True
        return self.host == _host() and not _is_alive(self.pid)


_places = msgspec.json.Decoder(dict[str, Checkpoint])


class StoredCheckpoints:
    """Of one stream, as one of those who read it sees them."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._me = uuid4().hex

    def take(self, part: str) -> str | None:
        now = self._store.now()
        taken = False

        def change(places: dict[str, Checkpoint]) -> None:
            nonlocal taken
            place = places.setdefault(part, Checkpoint())
            if taken := place.is_free(now, self._me):
                self._hold(place, now)

        found = self._change(change)
        return found[part].position if taken else None

    def keep(self, part: str, position: str) -> bool:
        now = self._store.now()
        kept = False

        def change(places: dict[str, Checkpoint]) -> None:
            nonlocal kept
            place = places.setdefault(part, Checkpoint())
            if kept := place.owner == self._me:
                place.position = position
                self._hold(place, now)

        self._change(change)
        return kept

    def read(self) -> Mapping[str, str]:
        text = self._store.notes(KIND).get(self._name, "")
        return {part: place.position for part, place in _load(text).items()}

    def leave(self, part: str) -> None:
        def change(places: dict[str, Checkpoint]) -> None:
            if part in places and places[part].owner == self._me:
                places[part] = Checkpoint(places[part].position)

        self._change(change)

    def _hold(self, place: Checkpoint, now: int) -> None:
        place.owner, place.until = self._me, now + round(SECONDS * 1e6)
        place.host, place.pid = _host(), os.getpid()

    def _change(self, change: Callable[[dict[str, Checkpoint]], None]) -> dict[str, Checkpoint]:
        def write(text: str) -> str:
            places = _load(text)
            change(places)
            return msgspec.json.encode(places).decode()

        return _load(self._store.change_note(KIND, self._name, write))


def _load(text: str) -> dict[str, Checkpoint]:
    return _places.decode(text) if text else {}


def _host() -> str:
    """Where the numbers of processes mean the same: containers may share a name, and not their processes."""
    try:
        return f"{socket.gethostname()} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
