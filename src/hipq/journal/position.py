"""A position in the journal: the number of a segment, and an offset in bytes."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hipq.errors import Invalid, shown

_TEXT: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19})", re.ASCII)


class Position(NamedTuple):
    """A position; a store that keeps it has everything before it. Later positions are greater."""

    segment: int
    offset: int

    def __str__(self) -> str:
        return f"{self.segment}:{self.offset}"

    @classmethod
    def of(cls, text: str) -> Position:
        match = _TEXT.fullmatch(text)
        if not match:
            raise Invalid(f"a position in a journal is like 3:1200, not {shown(text)}")
        return cls(int(match[1]), int(match[2]))


BEGINNING: Final = Position(0, 0)
"""The position before the first segment, which has the number 1."""
