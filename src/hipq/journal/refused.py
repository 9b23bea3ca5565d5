"""What the store is there for, and will never take: kept in quarantine, with why, until somebody has looked at it.

A file has a line `#:Refused why=...`, and the batch as it stands in a segment.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from hipq.journal.aside import QUARANTINE, opened_place, placed
from hipq.journal.batch import Batch, body_is_right, decode, encode, header_at
from hipq.journal.finding import Finding
from hipq.journal.folder import Folder, read_at, refusal
from hipq.journal.position import Position
from hipq.journal.segment import name_of

SUFFIX: Final = ".refused"
_MARK: Final = b"#:Refused why="
_WHY_MOST: Final = 1000
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Kept(NamedTuple):
    file: str
    """Where it is, below the folder."""
    finding: Finding
    batch: Batch | None
    """None if it was damaged since."""


def keep(folder: Folder, end: Position, batch: Batch, why: str) -> Finding:
    """On disk when this returns. `end` is where the batch ends in the journal: kept twice, it is there once."""
    name = f"{end.segment:020d}.{end.offset}{SUFFIX}"
    said = "".join(letter if letter.isprintable() else " " for letter in why)[:_WHY_MOST]
    try:
        with opened_place(folder) as place:
            placed(folder, place, name, _MARK + said.encode("utf-8", "replace") + b"\n" + encode(batch, 0, 0))
    except OSError as error:
        raise refusal(error, folder.where(QUARANTINE)) from None
    return _finding(name, said)


def kept(folder: Folder) -> list[Kept]:
    """All that was refused and is still there."""
    if QUARANTINE not in os.listdir(folder.descriptor):
        return []
    try:
        with opened_place(folder) as place:
            return [_read(place, name) for name in sorted(os.listdir(place)) if name.endswith(SUFFIX)]
    except OSError as error:
        raise refusal(error, folder.where(QUARANTINE)) from None


def _read(place: int, name: str) -> Kept:
    descriptor = os.open(name, os.O_RDONLY | _SAFE, dir_fd=place)
    try:
        data = read_at(descriptor, 0, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
    line, _, rest = data.partition(b"\n")
    why = line.removeprefix(_MARK).decode("utf-8", "replace")[:_WHY_MOST]
    return Kept(f"{QUARANTINE}/{name}", _finding(name, why), _batch(rest))


def _batch(data: bytes) -> Batch | None:
    header = header_at(data, 0, 0, 0)
    if header is None:
        return None
    body = data[header.end() : header.end() + int(header["bytes"])]
    try:
        return decode(header, body) if body_is_right(header, body) else None
    except ValueError:
        return None


def _finding(name: str, why: str) -> Finding:
    number = name.partition(".")[0]
    return Finding("refused", name_of(int(number)) if number.isdigit() else name, 0, 0, why, f"{QUARANTINE}/{name}")
