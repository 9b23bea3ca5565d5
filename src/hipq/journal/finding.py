"""A finding about a journal: something that should not be there, or that should and is not."""

from __future__ import annotations

from typing import Literal

import msgspec


class JournalFinding(msgspec.Struct, frozen=True):
    """A finding; its text is one sentence."""

    kind: Literal["cut", "damage", "missing", "refused", "note"]
    """cut: the end of a write that was interrupted. damage: bytes that are no batch. missing: bytes that were there
    once. refused: a batch that the store would not take. note: worth knowing."""
    file: str
    offset: int
    length: int
    why: str
    kept: str = ""
    """The file in the folder that has these bytes now; "" = none."""

    @property
    def is_damage(self) -> bool:
        """Whether acknowledged batches may be lost."""
        return self.kind in ("damage", "missing", "refused")

    def __str__(self) -> str:
        if self.kind == "refused":
            return f"the database has refused {self.why}; it is kept in {self.kept}"
        where = f"{self.file}: {self.length:,} bytes at {self.offset:,}" if self.length else self.file
        return f"{where}: {self.why}" + (f"; they are kept in {self.kept}" if self.kept else "")
