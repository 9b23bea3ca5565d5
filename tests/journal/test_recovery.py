"""Opening a journal that something has happened to."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from zlib import crc32

import pytest

from hipq.errors import HipqError, JournalRefused
from hipq.journal import Batch, Journal, Position
from hipq.journal.batch import encode, salted
from tests.journal.helpers import batch, copy, drain, ends, examined, file, opened, readable, written


def test_a_journal_that_was_never_used_is_empty_however_often_it_is_opened(folder: Path) -> None:
    for _ in range(3):
        with opened(folder) as journal:
            assert journal.found == []
            assert journal.read_reserve(1, 1) is None
            assert (journal.waiting_jobs, journal.waiting_bytes) == (0, 0)
    assert sorted(os.listdir(folder)) == ["00000000000000000001.journal", "identity", "lock"]


def test_an_identity_stays_and_is_never_another_journals(folder: Path, tmp_path: Path) -> None:
    with opened(folder) as journal, opened(tmp_path / "other") as other:
        identity = journal.identity
        assert identity != other.identity
    with opened(folder) as journal:
        assert journal.identity == identity


@pytest.mark.parametrize("text", [b"", b"\x00" * 60, b"#:Identity journal=" + b"a" * 32 + b",sum=00000000\n", None])
def test_a_damaged_identity_comes_back_from_the_segments(folder: Path, text: bytes | None) -> None:
    with opened(folder) as journal:
        identity = journal.identity
        journal.write_now(batch(1))
    (folder / "identity").unlink() if text is None else (folder / "identity").write_bytes(text)
    with opened(folder) as journal:
        assert journal.identity == identity, "else the store would take everything a second time"
        assert [one.file for one in journal.found] == ["identity"]
        assert drain(journal) == [batch(1)]


def test_a_batch_hidden_in_a_payload_is_not_taken_for_one_next_to_damage(folder: Path) -> None:
    """Who writes it may guess everything but the salt, and that only the file knows."""
    forged = Batch("victim", "pay", 1, (b"all my money",), 1)
    guesses = [encode(forged, salted(salt), offset) for salt in ("00" * 16, "ff" * 16) for offset in range(132, 700, 7)]
    written(folder, [batch(1, b"first"), batch(2, b"".join(guesses), b"".join(guesses)), batch(4, b"last")])
    (start, first, second, _) = ends(folder, 1)
    data = bytearray(file(folder, 1).read_bytes())
    data[first + 20] ^= 1  # the header of the second: its length is not known any more
    data[start + 20] ^= 1  # and of the one before
    file(folder, 1).write_bytes(data)
    with opened(folder) as journal:
        (damage,) = journal.found
        assert (damage.offset, damage.length) == (start, second - start)
        assert drain(journal) == [batch(4, b"last")]


def test_a_true_batch_copied_to_another_place_is_not_taken_for_one(folder: Path) -> None:
    written(folder, [batch(1), batch(2)])
    start, first, _ = ends(folder, 1)
    data = file(folder, 1).read_bytes()
    file(folder, 1).write_bytes(data + data[start:first])
    assert readable(folder) == [batch(1), batch(2)]


@pytest.mark.parametrize("rubbish", [b"\x00" * 5000, os.urandom(3000), b"#:Batch " * 500, b"\n" * 100, b"#:Batch x\n"])
@pytest.mark.parametrize("is_in_the_middle", [False, True])
def test_rubbish_is_put_aside_and_reading_goes_on_behind_it(
    folder: Path, rubbish: bytes, is_in_the_middle: bool
) -> None:
    written(folder, [batch(1), batch(2, b"x" * 6000), batch(3)])
    _, first, second, third = ends(folder, 1)
    data = file(folder, 1).read_bytes()
    at = first if is_in_the_middle else third
    file(folder, 1).write_bytes(data[:at] + rubbish + data[at + len(rubbish) :])
    for _ in range(2):  # as often as it is opened it is said, and once it is kept
        with opened(folder, start=False) as journal:
            (damage,) = journal.found
            end = second if is_in_the_middle else third + len(rubbish)
            assert (damage.kind, damage.file, damage.offset) == ("damage", file(folder, 1).name, at)
            assert damage.length == end - at
            assert (folder / damage.kept).read_bytes()[: len(rubbish)] == rubbish
        assert len(os.listdir(folder / "quarantine")) == 1
    assert readable(folder) == [batch(1), *([] if is_in_the_middle else [batch(2, b"x" * 6000)]), batch(3)]


def test_damage_that_looks_different_later_is_kept_twice(folder: Path) -> None:
    written(folder, [batch(1), batch(2)])
    for value in (b"?", b"!"):
        data = file(folder, 1).read_bytes()
        file(folder, 1).write_bytes(data[:200] + value + data[201:])
        with opened(folder, start=False) as journal:
            assert journal.found
    kept = sorted((folder / "quarantine").iterdir())
    assert [path.read_bytes()[200 - 132 : 201 - 132] for path in kept] == [b"?", b"!"]


def test_a_segment_whose_first_line_is_damaged_is_put_aside_whole(folder: Path) -> None:
    written(folder, [batch(1)], [batch(2)], [batch(3)])
    data = b"#:Jurnal" + file(folder, 2).read_bytes()[8:]
    file(folder, 2).write_bytes(data)
    with opened(folder) as journal:
        (damage,) = journal.found
        assert (damage.file, damage.offset, damage.length) == (file(folder, 2).name, 0, len(data))
        assert (folder / damage.kept).read_bytes() == data
        assert drain(journal) == [batch(1), batch(3)]
    assert not file(folder, 2).exists()


def test_the_number_of_the_last_segment_is_not_used_again_if_it_is_put_aside(folder: Path) -> None:
    """Else the store, which knows a position in it, would think that it has what comes next."""
    written(folder, [batch(1)], [batch(2, b"x" * 1000)])
    file(folder, 2).write_bytes(b"nothing")
    with opened(folder, start=False):
        pass
    with opened(folder, position=Position(2, 900)) as journal:
        journal.write_now(batch(3))
        assert drain(journal) == [batch(3)]


def test_a_segment_that_is_missing_is_reported(folder: Path) -> None:
    written(folder, [batch(1)], [batch(2)], [batch(3)], [batch(4)])
    length = file(folder, 3).stat().st_size
    file(folder, 2).unlink()
    file(folder, 3).unlink()
    with opened(folder) as journal:
        (missing,) = journal.found
        assert (missing.kind, missing.file, missing.length) == ("missing", file(folder, 3).name, length)
        assert "between 1 and 4" in str(missing)
        assert drain(journal) == [batch(1), batch(4)]


def test_a_journal_whose_first_segment_is_missing_says_so_when_the_store_knows_less(folder: Path) -> None:
    with opened(folder) as journal:
        journal.write_now(batch(1))
        token = journal.read_reserve(1, 1)
        assert token
        journal.write_now(batch(2))
    written(folder, [batch(3)])
    file(folder, 1).unlink()
    with opened(folder, position=token.after) as journal:
        (missing,) = journal.found
        assert missing.kind == "missing"
        assert drain(journal) == [batch(3)]
    with opened(folder) as journal:
        assert "the store knows nothing" in str(journal.found[0])


def test_with_all_segments_gone_it_is_another_journal(folder: Path) -> None:
    """Numbers begin again: what is written from now on must not be taken for what the store has."""
    with opened(folder) as journal:
        identity = journal.identity
    written(folder, [batch(1)], [batch(2)])
    for path in folder.glob("*.journal"):
        path.unlink()
    with opened(folder) as journal:
        assert journal.identity != identity
        assert [one.kind for one in journal.found] == ["missing"]


def test_what_is_behind_the_end_that_the_next_segment_knows_is_not_read(folder: Path) -> None:
    """It was cut back when the disk was full, and its writer told so; then the power failed before the cut was kept."""
    written(folder, [batch(1)])
    before = file(folder, 1).read_bytes()
    unwanted = encode(batch(2), examined(folder)[1].segments[0].salt, len(before))
    written(folder, [batch(3)])
    file(folder, 1).write_bytes(before + unwanted)
    with opened(folder) as journal:
        (damage,) = journal.found
        assert (folder / damage.kept).read_bytes() == unwanted
        assert drain(journal) == [batch(1), batch(3)]


def test_a_block_that_the_disk_cannot_read_costs_the_batches_in_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = b"x" * 3000
    written(folder, [batch(number, payload) for number in range(1, 6)])
    pread = os.pread

    def failing(descriptor: int, length: int, offset: int) -> bytes:
        if offset < 2 * 4096 and offset + length > 4096 and os.fstat(descriptor).st_size > 9000:
            raise OSError(errno.EIO, "Input/output error")
        return pread(descriptor, length, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", failing)
        with opened(folder) as journal:
            assert journal.found
            assert [one.first for one in drain(journal)] == [1, 4, 5]


def test_what_was_written_before_a_kill_is_synced_before_it_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was killed may not have come to syncing it; and what the store has must not vanish here in a power cut."""
    written(folder, [batch(1)], [batch(2)])
    real, synced = os.fsync, set[int]()

    def watched(descriptor: int) -> None:
        real(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", watched)
        journal = Journal(folder)
    journal.close()
    assert {path.stat().st_ino for path in (folder, file(folder, 1), file(folder, 2))} <= synced


@pytest.mark.parametrize(("right", "wrong"), [
    (b"2026-06-21T00:00:00", b"2026-13-21T00:00:00"), (b"count=1", b"count=2"), (b"form=lines", b"form=counted"),
    (b"acme", b"\xff\xff\xff\xff"),
])  # fmt: skip
def test_what_nobody_could_have_written_is_put_aside_though_its_sums_are_right(
    folder: Path, right: bytes, wrong: bytes
) -> None:
    with opened(folder, start=False) as journal:
        journal.write_now(batch(1))
        data = file(folder, 1).read_bytes()
        salt = examined(folder)[1].segments[0].salt
        header, body = encode(batch(2), salt, len(data)).replace(right, wrong).split(b"\n", 1)
        text = header[: header.index(b",head=")]
        head = crc32(text, crc32(len(data).to_bytes(8, "big"), salt))
        body = body.removesuffix(b"#:EndBatch\n")
        forged = b"%b,head=%08x,sum=%08x\n%b#:EndBatch\n" % (text, head, crc32(body, head), body)
    file(folder, 1).write_bytes(data + forged)
    written(folder, [batch(3)])
    with opened(folder) as journal:
        assert drain(journal) == [batch(1), batch(3)]
        (finding,) = journal.found
        assert (folder / finding.kept).read_bytes() == forged
        assert (journal.waiting_jobs, journal.waiting_bytes) == (0, 0)


def test_a_store_that_has_more_than_there_is_is_told_so_before_anything_is_lost(folder: Path, tmp_path: Path) -> None:
    """An old copy of a journal: what is written to it now has positions that the store has passed already."""
    with opened(folder) as journal:
        journal.write_now(batch(1))
    old = copy(folder, tmp_path / "old")
    written(folder, [batch(2)], [batch(3, b"x" * 1000)])
    with opened(old, start=False) as journal:
        journal.write_now(batch(4))
        with pytest.raises(JournalRefused, match="files are missing, or it is an old copy"):
            journal.start_at(Position(3, 1100))
        with pytest.raises(HipqError):
            journal.read_reserve(1, 1)
    assert readable(old) == [batch(1), batch(4)], "nothing was removed"


def test_a_position_in_the_midst_of_a_batch_is_refused(folder: Path) -> None:
    written(folder, [batch(1), batch(2)])
    _, first, _ = ends(folder, 1)
    with opened(folder, start=False) as journal:
        with pytest.raises(JournalRefused, match="in the midst of a batch"):
            journal.start_at(Position(1, first + 1))
        journal.start_at(Position(1, first))
        assert drain(journal) == [batch(2)]


def test_a_position_behind_the_end_of_a_segment_that_was_cut_loses_nothing_new(folder: Path) -> None:
    """The store has what a power cut took from the journal."""
    written(folder, [batch(1), batch(2)])
    _, first, second = ends(folder, 1)
    os.truncate(file(folder, 1), first)
    with opened(folder, position=Position(1, second)) as journal:
        journal.write_now(batch(3))
        assert drain(journal) == [batch(3)]
