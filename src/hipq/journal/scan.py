"""Reading a segment back: whole batches, damage, and perhaps a cut end. It is read in pieces, never whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from hipq.journal.batch import END, HEADER_MOST, MARK, Header, begins_a_header, body_is_right, header_at

PIECE: Final = 1 << 20
"""Bytes that are read at once; more where a batch has more."""

Read = Callable[[int, int], bytes]
"""Reads bytes from an offset on; fewer at the end of the file."""


class Record(NamedTuple):
    """A batch whose sums are right."""

    offset: int
    end: int
    header: Header
    body: bytes
    is_marked: bool
    """Whether the end mark, which nothing relies on, is as it was written."""


class Damage(NamedTuple):
    """Bytes that are no whole batch."""

    offset: int
    end: int
    why: str


class Cut(NamedTuple):
    """The beginning of a batch at the segment's end, as an interrupted write leaves it."""

    offset: int
    end: int


Found = Record | Damage | Cut


def scan(read: Read, salt: int, start: int, end: int) -> Iterator[Found]:
    """All records between two offsets, in order and without a gap. `start` is where a batch begins, or should."""
    at = base = start
    data = b""
    while at < end:
        header = header_at(data, at - base, salt, at)
        needed = HEADER_MOST if header is None else header.end() - (at - base) + int(header["bytes"]) + len(END)
        if at - base + needed > len(data) and (base != at or len(data) < min(needed, end - at)):
            data, base = read(at, min(max(PIECE, needed), end - at)), at
            if len(data) < min(needed, end - at):
                end = at + len(data)  # the file became shorter meanwhile
            continue
        if header is None:
            found = _no_header(read, salt, at, end, data[at - base :] if end - at < HEADER_MOST else b"")
        else:
            found = _with_header(header, data, at, min(at + needed, end))
        yield found
        at = found.end


def _with_header(header: Header, data: bytes, at: int, end: int) -> Found:
    """The finding for a batch with a correct header. It may be cut short; its end mark may be missing."""
    behind = header.end() + int(header["bytes"])
    if len(data) < behind:
        return Cut(at, end)
    body = data[header.end() : behind]
    if not body_is_right(header, body):
        return Damage(at, end, "the sum of a batch is wrong")
    return Record(at, end, header, body, data[behind : behind + len(END)] == END)


def _no_header(read: Read, salt: int, at: int, end: int, rest: bytes) -> Found:
    if rest and begins_a_header(rest):
        return Cut(at, end)
    return Damage(at, _next_batch(read, salt, at + 1, end), "this is no batch, or the header of one that is damaged")


def _next_batch(read: Read, salt: int, at: int, end: int) -> int:
    """Where the next whole batch begins. A batch inside a payload has wrong sums here."""
    while at < end:
        data = read(at, min(PIECE, end - at))
        if not data:
            break
        is_last = at + len(data) >= end
        place = data.find(MARK)
        while place >= 0:
            if place and not is_last and place + HEADER_MOST > len(data):
                break  # its header may go on behind this piece: read on from here
            header = header_at(data, place, salt, at + place)
            if header is not None and _is_there(read, header, at + place, end):
                return at + place
            place = data.find(MARK, place + 1)
        at += place if place > 0 else max(len(data) - len(MARK) + 1, 1)
    return end


def _is_there(read: Read, header: Header, at: int, end: int) -> bool:
    start, size = at + header.end() - header.start(), int(header["bytes"])
    if start + size + len(END) > end:
        return False
    return body_is_right(header, read(start, size))
