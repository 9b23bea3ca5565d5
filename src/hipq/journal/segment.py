"""A file of the journal: its name, its first line, its counts, and positions in it. Pure."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from hipq.errors import Invalid, shown
from hipq.journal.batch import has_control, salted

VERSION: Final = 1
SUFFIX: Final = ".journal"
FIRST_LINE_MOST: Final = 256

_POSITION: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19})", re.ASCII)
_NAME: Final = re.compile(r"([0-9]{20})\.journal", re.ASCII)
_VERSION: Final = re.compile(rb"#:Journal version=([0-9]{1,9}),[^\n]*,sum=([0-9a-f]{8})\n")
_ANY_VERSION: Final = re.compile(rb"#:Journal version=([0-9]{1,9})\b")
_FIRST_LINE: Final = re.compile(
    rb"#:Journal version=1,journal=(?P<journal>[0-9a-f]{32}),segment=(?P<segment>[0-9]{1,19}),"
    rb"after=(?P<after>[0-9]{1,19}:[0-9]{1,19}),salt=(?P<salt>[0-9a-f]{32}),sum=(?P<sum>[0-9a-f]{8})\n"
)


class Position(NamedTuple):
    """A position; a store that keeps it has everything before it. Later positions are greater."""

    segment: int
    offset: int

    def __str__(self) -> str:
        return f"{self.segment}:{self.offset}"

    @classmethod
    def of(cls, text: str) -> Position:
        match = _POSITION.fullmatch(text)
        if not match:
            raise Invalid(f"a position in a journal is like 3:1200, not {shown(text)}")
        return cls(int(match[1]), int(match[2]))


BEGINNING: Final = Position(0, 0)
"""The position before the first segment, which has the number 1."""


@dataclass
class Segment:
    """A segment with a correct first line. `length` grows while it is written to; only synced bytes count."""

    number: int
    after: Position
    """Where the segment before this one ended."""
    salt: int
    start: int
    """The offset of the first batch."""
    length: int
    journal: str = ""
    batches: int = 0
    """The number of batches, counted when the journal is examined and not while it is written."""
    jobs: int = 0
    bytes: int = 0
    """Bytes of whole batches: without the first line, and without damage."""

    @property
    def end(self) -> Position:
        return Position(self.number, self.length)


def name_of(number: int) -> str:
    return f"{number:020d}{SUFFIX}"


def number_of(name: str) -> int | None:
    """A segment's number; None if this is not a segment's name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) > 0 else None


def new_first_line(journal: str, number: int, after: Position) -> bytes:
    """A first line with a new random salt."""
    text = f"#:Journal version={VERSION},journal={journal},segment={number},after={after},salt={secrets.token_hex(16)}"
    return _summed(text.encode())


def _summed(text: bytes) -> bytes:
    return b"%b,sum=%08x\n" % (text, crc32(text))


def read_first_line(data: bytes, number: int, length: int) -> Segment | None:
    """The segment that begins with this line; None if the line is damaged."""
    match = _FIRST_LINE.match(data)
    if not match or crc32(data[: match.start("sum") - len(b",sum=")]) != int(match["sum"], 16):
        return None
    if int(match["segment"]) != number:
        return None  # another segment's file under this name
    return Segment(
        number,
        Position.of(match["after"].decode()),
        salted(match["salt"].decode()),
        match.end(),
        length,
        match["journal"].decode(),
    )


def other_version(data: bytes) -> int | None:
    """The version in a first line of another version; a line of this one with a damaged digit does not count."""
    match = _ANY_VERSION.match(data)
    if not match or int(match[1]) == VERSION:
        return None
    ours = b"#:Journal version=%d" % VERSION + data[match.end() :]
    line = _VERSION.match(ours)
    if line and crc32(ours[: line.start(2) - len(b",sum=")]) == int(line[2], 16):
        return None
    return int(match[1])


def begins_a_first_line(data: bytes) -> bool:
    """Whether this may be the beginning of a first line whose end was never written."""
    start = b"#:Journal version=1,journal="
    return data[: len(start)] == start[: len(data)] and len(data) < FIRST_LINE_MOST and not has_control(data)
