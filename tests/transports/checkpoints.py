"""Places for sources that are tested without a database."""

from __future__ import annotations

from collections.abc import Mapping


class Nowhere:
    """Places that nobody needs here: the server remembers what was read."""

    def take(self, part: str) -> str | None:
        raise AssertionError(part)

    def keep(self, part: str, position: str) -> bool:
        raise AssertionError(part, position)

    def read(self) -> Mapping[str, str]:
        raise AssertionError

    def leave(self, part: str) -> None:
        raise AssertionError(part)


class MemoryCheckpoints:
    """As one source of a group sees them; `others` are the same notes seen by another."""

    def __init__(self, notes: dict[str, tuple[str, object]] | None = None) -> None:
        self.notes = {} if notes is None else notes

    def take(self, part: str) -> str | None:
        position, owner = self.notes.get(part, ("", None))
        if owner not in (None, self):
            return None
        self.notes[part] = (position, self)
        return position

    def keep(self, part: str, position: str) -> bool:
        if self.notes.get(part, ("", None))[1] is not self:
            return False
        self.notes[part] = (position, self)
        return True

    def read(self) -> Mapping[str, str]:
        return {part: position for part, (position, _) in self.notes.items()}

    def leave(self, part: str) -> None:
        if self.notes.get(part, ("", None))[1] is self:
            self.notes[part] = (self.notes[part][0], None)

    def others(self) -> MemoryCheckpoints:
        return MemoryCheckpoints(self.notes)

    def mine(self) -> list[str]:
        return sorted(part for part, (_, owner) in self.notes.items() if owner is self and part.startswith("shard"))
