"""A journal cut at every byte, and with every bit flipped: what is read was written, and the rest is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipq.journal import Batch, JournalFinding
from tests.journal.helpers import batch, copy, drain, ends, examined, file, opened

FIRST = [batch(1, b"1", b"", b"3"), batch(4, b"a\nb", b"\x00\xff", options='{"at":1}')]
MARK = len(b"#:EndBatch\n")
"""Nothing relies on the mark behind a batch."""
SECOND = [batch(7, b"#:EndBatch\n"), batch(10, b"ten")]


@pytest.fixture(scope="module")
def written(in_memory: Path) -> Path:
    """Two segments, with batches of both forms."""
    folder = in_memory / "written"
    for some in (FIRST, SECOND):  # a process of its own writes each: opened again, a journal has a new segment
        with opened(folder, start=False) as journal:
            for one in some:
                journal.write_now(one)
    assert examined(folder)[0] == FIRST + SECOND
    return folder


def recovered(folder: Path) -> tuple[list[Batch], list[JournalFinding]]:
    """What opening it finds; and that it can be written to afterwards, as if nothing had been."""
    with opened(folder) as journal:
        found = list(journal.found)
        journal.write_now(batch(100))
    with opened(folder) as journal:
        assert not [one for one in journal.found if one.kind == "cut"], "what was cut off is gone"
        *batches, last = drain(journal)
    assert last == batch(100)
    return batches, found


def test_the_last_segment_cut_anywhere_has_all_that_was_before_the_cut(written: Path, in_memory: Path) -> None:
    boundaries = ends(written, 2)
    data = file(written, 2).read_bytes()
    for length in range(len(data)):
        folder = copy(written, in_memory / "journal")
        file(folder, 2).write_bytes(data[:length])
        batches, found = recovered(folder)
        assert batches == FIRST + SECOND[: sum(end - MARK <= length for end in boundaries[1:])], length
        start = max([0, *(end for end in boundaries if end <= length)])
        is_in_mark = any(end - MARK <= length < end for end in boundaries[1:])
        expected = [("note" if is_in_mark else "cut", start, length - start, "")] if length not in boundaries else []
        assert [(one.kind, one.offset, one.length, one.kept) for one in found] == expected, length


def test_an_earlier_segment_cut_anywhere_is_damage_and_the_rest_is_read(written: Path, in_memory: Path) -> None:
    boundaries = ends(written, 1)
    data = file(written, 1).read_bytes()
    for length in range(len(data)):
        folder = copy(written, in_memory / "journal")
        file(folder, 1).write_bytes(data[:length])
        batches, found = recovered(folder)
        assert batches == FIRST[: sum(end - MARK <= length for end in boundaries[1:])] + SECOND, length
        if length >= boundaries[0]:
            missing = found[0]
            assert (missing.kind, missing.offset, missing.length) == ("missing", length, len(data) - length)
        damage = [one for one in found if one.kind == "damage"]
        is_in_mark = any(end - MARK <= length <= end for end in boundaries[1:])
        assert len(damage) == (not is_in_mark and length != boundaries[0])
        for one in damage:
            assert (folder / one.kept).read_bytes() == data[one.offset : length]


@pytest.mark.parametrize("number", [1, 2])
def test_a_flipped_bit_costs_one_batch_at_most_and_is_always_reported(
    written: Path, in_memory: Path, number: int
) -> None:
    """All eight bits of every byte, looked at as `hipq journal check` does."""
    folder = copy(written, in_memory / "journal")
    start, *boundaries = ends(written, number)
    data = file(written, number).read_bytes()
    before, hit_ones, after = ([], FIRST, SECOND) if number == 1 else (FIRST, SECOND, [])
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            file(folder, number).write_bytes(damaged)
            batches, found = examined(folder)
            hit = sum(end <= place for end in boundaries)
            survivors = [] if place < start else [one for index, one in enumerate(hit_ones) if index != hit]
            reported = found.problems[0]
            assert reported.offset <= place < reported.offset + reported.length
            if reported.kind == "note":
                assert batches == FIRST + SECOND, "only the mark behind a batch was hit"
                assert place >= boundaries[hit] - MARK
            else:
                assert reported.kind == "damage", (place, bit)
                assert batches == before + survivors + after, (place, bit)


@pytest.mark.parametrize("number", [1, 2])
def test_what_a_flipped_bit_has_damaged_is_in_quarantine(written: Path, in_memory: Path, number: int) -> None:
    """One bit of every byte, opened in earnest."""
    data = file(written, number).read_bytes()
    for place in range(len(data)):
        folder = copy(written, in_memory / "journal")
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        file(folder, number).write_bytes(damaged)
        batches, found = recovered(folder)
        assert found, place
        assert [one for one in FIRST + SECOND if one in batches] == batches, "in order, and none is altered"
        for one in found:
            if one.kind == "damage":
                assert (folder / one.kept).read_bytes() == damaged[one.offset : one.offset + one.length]


def test_a_byte_that_is_gone_or_one_too_many_costs_one_batch_at_most(written: Path, in_memory: Path) -> None:
    """Then no batch behind it is where it was written: its sums say so, whatever it looks like."""
    folder = copy(written, in_memory / "journal")
    start, *boundaries = ends(written, 2)
    data = file(written, 2).read_bytes()
    for place in range(start, len(data)):
        for damaged in (data[:place] + data[place + 1 :], data[:place] + b"x" + data[place:]):
            file(folder, 2).write_bytes(damaged)
            batches, found = examined(folder)
            whole = sum(end - MARK <= place for end in boundaries)
            assert batches == FIRST + SECOND[:whole], place
            assert found.problems
