"""Which listener reads which part of a stream, and how far each part was read: a note in the database.

A claim on a part lasts some seconds on the database's clock. Claims only save work: where two listeners read the same
part for a moment, each answer is still used once.
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
"""The kind of the notes, under which databases have kept checkpoints from the start."""
SECONDS: Final = 10.0
"""How long a claim lasts unless it is renewed."""


class Checkpoint(msgspec.Struct, omit_defaults=True):
    """How far one part of a stream was read, and the listener that reads it."""

    position: str = ""
    owner: str = ""
    until: int = 0
    host: str = ""
    pid: int = 0

    def is_free(self, now: int, listener: str) -> bool:
        if self.owner in ("", listener) or self.until <= now:
            return True
        return self.host == _host() and not _is_alive(self.pid)


_checkpoints = msgspec.json.Decoder(dict[str, Checkpoint])


class StoredCheckpoints:
    """The checkpoints of one stream, as one listener claims and saves them."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._me = uuid4().hex

    def take(self, part: str) -> str | None:
        now = self._store.now()
        taken = False

        def change(checkpoints: dict[str, Checkpoint]) -> None:
            nonlocal taken
            checkpoint = checkpoints.setdefault(part, Checkpoint())
            if taken := checkpoint.is_free(now, self._me):
                self._hold(checkpoint, now)

        found = self._change(change)
        return found[part].position if taken else None

    def keep(self, part: str, position: str) -> bool:
        now = self._store.now()
        kept = False

        def change(checkpoints: dict[str, Checkpoint]) -> None:
            nonlocal kept
            checkpoint = checkpoints.setdefault(part, Checkpoint())
            if kept := checkpoint.owner == self._me:
                checkpoint.position = position
                self._hold(checkpoint, now)

        self._change(change)
        return kept

    def read(self) -> Mapping[str, str]:
        text = self._store.notes(KIND).get(self._name, "")
        return {part: checkpoint.position for part, checkpoint in _load(text).items()}

    def leave(self, part: str) -> None:
        def change(checkpoints: dict[str, Checkpoint]) -> None:
            if part in checkpoints and checkpoints[part].owner == self._me:
                checkpoints[part] = Checkpoint(checkpoints[part].position)

        self._change(change)

    def _hold(self, checkpoint: Checkpoint, now: int) -> None:
        checkpoint.owner, checkpoint.until = self._me, now + round(SECONDS * 1e6)
        checkpoint.host, checkpoint.pid = _host(), os.getpid()

    def _change(self, change: Callable[[dict[str, Checkpoint]], None]) -> dict[str, Checkpoint]:
        def write(text: str) -> str:
            checkpoints = _load(text)
            change(checkpoints)
            return msgspec.json.encode(checkpoints).decode()

        return _load(self._store.change_note(KIND, self._name, write))


def _load(text: str) -> dict[str, Checkpoint]:
    return _checkpoints.decode(text) if text else {}


def _host() -> str:
    """This host and its PID namespace: containers may share a host name, but not their processes."""
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
