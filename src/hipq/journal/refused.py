"""Jobs that a working store will never take: kept in quarantine with the reason, until somebody has looked at them.

A file has the refused jobs of one batch: for each job, or once if it is all of them, a line `#:Refused why=...` and a
batch of these jobs as it stands in a segment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hipq.journal.batch import END, Batch, Header, body_is_right, decode, encode, header_at
from hipq.journal.finding import JournalFinding
from hipq.journal.folder import Folder, read_at, refusal
from hipq.journal.position import Position
from hipq.journal.quarantine import QUARANTINE, open_quarantine, placed
from hipq.journal.segment import name_of

SUFFIX: Final = ".refused"
_MARK: Final = b"#:Refused why="
_WHY_MOST: Final = 1000
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class RefusedJob(NamedTuple):
    batch: Batch
    why: str


class RefusedFile(NamedTuple):
    file: str
    """The file, relative to the journal's folder."""
    finding: JournalFinding
    batch: Batch | None
    """The refused jobs; None if the file was damaged since."""


def keep(folder: Folder, end: Position, some: Sequence[RefusedJob]) -> list[JournalFinding]:
    """Keep refused jobs; they are on disk when this returns. `end` is where their batch ends in the journal: jobs
    that are kept twice are there once."""
    name = f"{end.segment:020d}.{end.offset}{SUFFIX}"
    said = ["".join(letter if letter.isprintable() else " " for letter in one.why)[:_WHY_MOST] for one in some]
    data = b"".join(
        _MARK + why.encode("utf-8", "replace") + b"\n" + encode(one.batch, 0, 0)
        for one, why in zip(some, said, strict=True)
    )
    try:
        with open_quarantine(folder) as directory:
            placed(folder, directory, name, data)
    except OSError as error:
        raise refusal(error, folder.where(QUARANTINE)) from None
    return [_finding(name, why) for why in said]


def kept(folder: Folder) -> list[RefusedFile]:
    """All refused jobs that are still there, in the order of the journal."""
    if QUARANTINE not in os.listdir(folder.descriptor):
        return []
    try:
        with open_quarantine(folder) as directory:
            names = sorted((name for name in os.listdir(directory) if name.endswith(SUFFIX)), key=_order)
            return [one for name in names for one in _read(directory, name)]
    except OSError as error:
        raise refusal(error, folder.where(QUARANTINE)) from None


def _order(name: str) -> tuple[str, int, str]:
    """The sort key of a file's name. Offsets are compared as numbers: as text 1166 would be behind 11658."""
    segment, offset = name.partition(".")[0], name.removesuffix(SUFFIX).rpartition(".")[2]
    return segment, int(offset) if offset.isdecimal() else 0, name


def _read(directory: int, name: str) -> Iterator[RefusedFile]:
    descriptor = os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)
    try:
        data = read_at(descriptor, 0, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
    at = 0
    while at < len(data) or not at:
        start = data.find(b"\n", at) + 1 or len(data)
        line = data[at:start].rstrip(b"\n")
        finding = _finding(name, line.removeprefix(_MARK).decode("utf-8", "replace")[:_WHY_MOST])
        header = header_at(data, start, 0, 0)
        if header is None:
            yield RefusedFile(f"{QUARANTINE}/{name}", finding, None)
            return  # where the next one begins is not known
        body = data[header.end() : header.end() + int(header["bytes"])]
        yield RefusedFile(f"{QUARANTINE}/{name}", finding, _batch(header, body))
        at = header.end() + int(header["bytes"]) + len(END)


def _batch(header: Header, body: bytes) -> Batch | None:
    try:
        return decode(header, body) if body_is_right(header, body) else None
    except ValueError:
        return None


def _finding(name: str, why: str) -> JournalFinding:
    number = name.partition(".")[0]
    return JournalFinding(
        "refused", name_of(int(number)) if number.isdigit() else name, 0, 0, why, f"{QUARANTINE}/{name}"
    )
