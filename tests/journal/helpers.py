"""Batches, and journals to look into."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hipq.journal import Batch, Journal, Position, Reserved
from hipq.journal.batch import decode
from hipq.journal.folder import Folder
from hipq.journal.recover import Examined, contents, examine
from hipq.journal.scan import Record
from hipq.journal.segment import name_of

DATE = 1_782_000_000_123_456
WAIT = 60.0
"""Seconds after which something that should happen at once is given up: machines under load are slow."""


class Clock:
    """Turned by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def batch(first: int, *payloads: bytes, tenant: str = "acme", jobtype: str = "resize.v2", options: str = "{}") -> Batch:
    return Batch(tenant, jobtype, first, payloads or (b"payload %d" % first,), DATE + first, options)


def file(folder: Path, number: int) -> Path:
    return folder / name_of(number)


@contextmanager
def opened(folder: Path, start: bool = True, position: Position | None = None, **settings: Any) -> Iterator[Journal]:
    journal = Journal(folder, **settings)
    try:
        if start:
            journal.start_at(position)
        yield journal
    finally:
        journal.close()


def written(folder: Path, *segments: list[Batch]) -> Path:
    """A process of its own writes each: opened again, a journal has a new segment."""
    for some in segments:
        with opened(folder, start=False) as journal:
            for one in some:
                journal.write_now(one)
    return folder


def reserve(journal: Journal, count: int = 1, seconds: float = WAIT) -> Reserved:
    token = journal.read_reserve(count, seconds)
    assert token
    return token


def drain(journal: Journal, count: int = 100) -> list[Batch]:
    """All that can be read, taken into no store."""
    found: list[Batch] = []
    while token := journal.read_reserve(count, WAIT):
        found += journal.read(token)
        journal.rsync(token)
    return found


def readable(folder: Path) -> list[Batch]:
    """Read by opening the journal in earnest."""
    with opened(folder) as journal:
        return drain(journal)


def examined(folder: Path) -> tuple[list[Batch], Examined]:
    """Read without changing anything."""
    place = Folder(folder, make=False)
    try:
        found = examine(place)
        every = [one for segment in found.segments for one in contents(place, segment)]
        return [decode(one.header, one.body) for one in every if isinstance(one, Record)], found
    finally:
        place.close()


def ends(folder: Path, number: int) -> list[int]:
    """Where the first line of a segment ends, and each of its batches."""
    place = Folder(folder, make=False)
    try:
        (segment,) = [one for one in examine(place).segments if one.number == number]
        return [segment.start, *(one.end for one in contents(place, segment))]
    finally:
        place.close()


def copy(folder: Path, target: Path) -> Path:
    """As it is found by the next process; what another copy left there is gone."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    return target


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
