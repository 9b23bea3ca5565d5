"""Files that are damaged, cut or removed while they are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.journal.helpers import WAIT, Clock, batch, drain, ends, file, opened, reserve


def test_damage_since_it_was_written_is_put_aside_and_reading_goes_on(folder: Path) -> None:
    with opened(folder) as journal:
        for number in range(1, 5):
            journal.write_now(batch(number))
        _, first, second, *_ = ends(folder, 1)
        with file(folder, 1).open("r+b") as segment:
            segment.seek(second - 15)
            segment.write(b"?")
        assert [one.first for one in drain(journal)] == [1, 3, 4]
        (damage,) = journal.found
        assert (damage.kind, damage.offset, damage.length) == ("damage", first, second - first)
        assert b"?" in (folder / damage.kept).read_bytes()
        assert (journal.waiting_jobs, journal.waiting_bytes) == (0, 0)
        assert not journal.wait(0)


def test_a_batch_damaged_while_it_was_reserved_is_never_handed_out_altered(folder: Path) -> None:
    clock = Clock()
    with opened(folder, clock=clock) as journal:
        journal.write_now(batch(1, b"a"))
        journal.write_now(batch(2, b"b"))
        reserve(journal, 2, 10)
        clock.now += 11
        data = file(folder, 1).read_bytes()
        file(folder, 1).write_bytes(data.replace(b"\na\n", b"\nz\n"))
        assert journal.read(reserve(journal, 2, 10)) == [batch(2, b"b")]


def test_at_the_end_nothing_but_damage_is_no_reason_to_look_for_ever(folder: Path) -> None:
    with opened(folder) as journal:
        journal.write_now(batch(1))
        with file(folder, 1).open("r+b") as segment:
            segment.seek(200)
            segment.write(b"?")
        assert journal.wait(WAIT)
        assert journal.read_reserve(1, 1) is None
        assert not journal.wait(0)
        journal.write_now(batch(2))
        assert drain(journal) == [batch(2)]


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_removed_by_somebody_is_missed(folder: Path, number: int) -> None:
    with opened(folder, segment_bytes=1) as journal:
        for one in (1, 2, 3):
            journal.write_now(batch(one))
        file(folder, number).unlink()
        assert [one.first for one in drain(journal)] == [one for one in (1, 2, 3) if one != number]
        (missing,) = journal.found
        assert (missing.kind, missing.file) == ("missing", file(folder, number).name)


def test_a_segment_made_shorter_by_somebody_is_missed(folder: Path) -> None:
    with opened(folder) as journal:
        for one in (1, 2, 3):
            journal.write_now(batch(one))
        os.truncate(file(folder, 1), ends(folder, 1)[2])
        assert [one.first for one in drain(journal)] == [1, 2]
        (missing,) = journal.found
        assert missing.kind == "missing"
        assert (journal.waiting_jobs, journal.wait(0)) == (0, False)
