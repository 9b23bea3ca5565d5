"""What was found in a journal that should not be there, or should and is not."""

from __future__ import annotations

from typing import Literal

import msgspec


class JournalFinding(msgspec.Struct, frozen=True):
    """As a text it is one sentence."""

    kind: Literal["cut", "damage", "missing", "refused", "note"]
    """cut: the end of what was being written when it stopped. damage: bytes that are no batch. missing: bytes that were
    there once. refused: a batch that the store would not take. note: worth knowing."""
    file: str
    offset: int
    length: int
    why: str
    kept: str = ""
    """Where in the folder these bytes are now; "" = nowhere else."""

    @property
    def is_damage(self) -> bool:
        """Whether batches that were acknowledged may be lost."""
        return self.kind in ("damage", "missing", "refused")

    def __str__(self) -> str:
        if self.kind == "refused":
            return f"the database has refused {self.why}; it is kept in {self.kept}"
        where = f"{self.file}: {self.length:,} bytes at {self.offset:,}" if self.length else self.file
        return f"{where}: {self.why}" + (f"; they are kept in {self.kept}" if self.kept else "")
