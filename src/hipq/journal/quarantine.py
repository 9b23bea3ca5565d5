"""Quarantine: where damaged bytes and refused jobs are kept, so that nothing is ever thrown away; and findings, which
say what is there and why.

A file of refused jobs, which a working store will never take, has those of one batch: for each job, or once if it is
all of them, a line `#:Refused why=...` and a batch of these jobs as it stands in a segment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final, Literal, NamedTuple

import msgspec

from hipq.journal.batch import END, Batch, body_is_right, decode, encode, header_at
from hipq.journal.directory import Directory, read_at, refusal
from hipq.journal.segment import Position, name_of

QUARANTINE: Final = "quarantine"
REFUSED: Final = ".refused"
"""The end of the name of a file of refused jobs."""
_MARK: Final = b"#:Refused why="
_WHY_MOST: Final = 1000
_PIECE: Final = 1 << 20


class JournalFinding(msgspec.Struct, frozen=True):
    """Something about a journal that should not be there, or that should and is not; its text is one sentence."""

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


@contextmanager
def open_quarantine(folder: Directory) -> Iterator[Directory]:
    """Open the quarantine of a journal's folder, and make it if it is not there."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            os.mkdir(QUARANTINE, 0o700, dir_fd=folder.descriptor)
            folder.sync()
        except FileExistsError:
            pass
        place = Directory(os.open(QUARANTINE, flags, dir_fd=folder.descriptor), folder.path, f"{QUARANTINE}/")
        try:
            yield place
        finally:
            os.close(place.descriptor)
    except OSError as error:
        raise refusal(error, folder.where(QUARANTINE)) from None


# -- damaged bytes ---------------------------------------------------------------------------------------------------
def quarantine_copy(folder: Directory, number: int, offset: int, end: int) -> str:
    """Copy some bytes of a segment into quarantine, unless an earlier opening has; returns the file."""
    with folder.opened(name_of(number)) as source, open_quarantine(folder) as place:
        for name in _names(f"{number:020d}.{offset}-{end}"):  # a copy whose bytes differ is kept beside this one
            pieces = (read_at(source, at, min(_PIECE, end - at)) for at in range(offset, end, _PIECE))
            if not place.has(name):
                place.write(name, pieces)
                break
            with place.opened(name) as copy:
                same = all(piece == read_at(copy, at, _PIECE) for at, piece in zip(count(0, _PIECE), pieces))
                if same and os.fstat(copy).st_size == end - offset:
                    break
    return f"{QUARANTINE}/{name}"


def quarantine_move(folder: Directory, number: int) -> str:
    """Move a whole segment, of which nothing can be read, into quarantine; returns the file."""
    with open_quarantine(folder) as place:
        name = next(name for name in _names(name_of(number)) if not place.has(name))
        os.rename(name_of(number), name, src_dir_fd=folder.descriptor, dst_dir_fd=place.descriptor)
        place.sync()
    folder.sync()
    return f"{QUARANTINE}/{name}"


def _names(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}.{number}" for number in count(2))


# -- refused jobs ----------------------------------------------------------------------------------------------------
class RefusedJob(NamedTuple):
    batch: Batch
    why: str


class RefusedFile(NamedTuple):
    finding: JournalFinding
    """Why the jobs were refused, and the file that they are `kept` in."""
    batch: Batch | None
    """The refused jobs; None if the file was damaged since."""


def keep_refused(folder: Directory, end: Position, some: Sequence[RefusedJob]) -> list[JournalFinding]:
    """Keep refused jobs; they are on disk when this returns. `end` is where their batch ends in the journal: jobs
    that are kept twice are there once."""
    name = f"{end.segment:020d}.{end.offset}{REFUSED}"
    said = ["".join(letter if letter.isprintable() else " " for letter in one.why)[:_WHY_MOST] for one in some]
    texts = [
        _MARK + why.encode("utf-8", "replace") + b"\n" + encode(one.batch, 0, 0)
        for one, why in zip(some, said, strict=True)
    ]
    with open_quarantine(folder) as place:
        place.write(name, [b"".join(texts)])
    return [_finding(name, why) for why in said]


def kept_refused(folder: Directory) -> list[RefusedFile]:
    """All refused jobs that are still there, in the order of the journal."""
    if not folder.has(QUARANTINE):
        return []
    with open_quarantine(folder) as place:
        names = sorted((name for name in os.listdir(place.descriptor) if name.endswith(REFUSED)), key=_order)
        return [one for name in names for one in _read(place.read(name), name)]


def _order(name: str) -> tuple[str, int, str]:
    """The sort key of a file's name. Offsets are compared as numbers: as text 1166 would be behind 11658."""
    segment, offset = name.partition(".")[0], name.removesuffix(REFUSED).rpartition(".")[2]
    return segment, int(offset) if offset.isdecimal() else 0, name


def _read(data: bytes, name: str) -> Iterator[RefusedFile]:
    at = 0
    while at < len(data) or not at:
        start = data.find(b"\n", at) + 1 or len(data)
        line = data[at:start].rstrip(b"\n")
        finding = _finding(name, line.removeprefix(_MARK).decode("utf-8", "replace")[:_WHY_MOST])
        header, batch = header_at(data, start, 0, 0), None
        if header is not None:
            at = header.end() + int(header["bytes"])
            body = data[header.end() : at]
            try:
                batch = decode(header, body) if body_is_right(header, body) else None
            except ValueError:
                pass
            at += len(END)
        yield RefusedFile(finding, batch)
        if header is None:
            return  # where the next one begins is not known


def _finding(name: str, why: str) -> JournalFinding:
    number = name.partition(".")[0]
    file = name_of(int(number)) if number.isdigit() else name
    return JournalFinding("refused", file, 0, 0, why, f"{QUARANTINE}/{name}")
