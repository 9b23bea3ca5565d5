"""The disk fails, or is full: nothing is acknowledged that is not there, and a disk with room again is used again."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hipq.errors import JournalBroken, JournalError, JournalFull
from hipq.journal import Journal
from tests.journal.helpers import WAIT, batch, drain, examined, file, opened, readable

PROJECT = Path(__file__).parents[2]


def program(folder: Path, *words: str, under: tuple[str, ...] = ()) -> list[str]:
    """What a process says that writes to a journal."""
    command = [*under, sys.executable, "-m", "tests.journal.program", str(folder), *words]
    ran = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=WAIT, check=True)
    assert "Traceback" not in ran.stderr
    return ran.stdout.splitlines()


def failing(number: int) -> Callable[..., int]:
    def fail(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


class Room:
    """A disk with so many bytes left: it takes what fits, and says why not more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int = errno.ENOSPC) -> None:
        self.left, self._number, self._real = 1 << 40, number, os.pwrite
        monkeypatch.setattr(os, "pwrite", self._write)

    def _write(self, descriptor: int, data: bytes, offset: int) -> int:
        if not self.left:
            raise OSError(self._number, os.strerror(self._number))
        done = self._real(descriptor, data[: self.left], offset)
        self.left -= done
        return done


# -- a sync that fails -----------------------------------------------------------------------------------------------
def test_after_a_failed_sync_nothing_is_acknowledged_any_more(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(folder) as journal:
        journal.write_now(batch(1))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", failing(errno.EIO))
            with pytest.raises(JournalBroken, match="could not be synced: input/output error"):
                journal.write_now(batch(2))
        assert isinstance(journal.broken, JournalBroken)
        uses: list[Callable[[], None]] = [
            lambda: journal.write_now(batch(3)), lambda: journal.write(batch(3), print), journal.wsync,
        ]  # fmt: skip
        for use in uses:
            with pytest.raises(JournalBroken, match="restart, and check the disk"):
                use()
        assert drain(journal) == [batch(1)], "what was not synced is not read; what was, still is"
    assert batch(1) in readable(folder)
    assert batch(3) not in readable(folder)


def test_all_that_gathered_hears_of_a_failed_sync(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception | None] = []
    with opened(folder) as journal:

        def fail_once_others_wait(_: int) -> None:
            for number in range(2, 30):
                journal.write(batch(number), errors.append)
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "fdatasync", fail_once_others_wait)
        with pytest.raises(JournalBroken):
            journal.write_now(batch(1))
    assert len(errors) == 28
    assert all(isinstance(error, JournalBroken) for error in errors)


@pytest.mark.parametrize("which", [1, 2], ids=["the file", "the folder"])
def test_a_failed_sync_of_a_new_segment_ends_it_too(folder: Path, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    with opened(folder, segment_bytes=1) as journal:
        journal.write_now(batch(1))
        real, calls = os.fsync, iter(range(1, 100))

        def fail(descriptor: int) -> None:
            if next(calls) == which:
                raise OSError(errno.EIO, "Input/output error")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(JournalBroken):
            journal.write_now(batch(2))
        with pytest.raises(JournalBroken):
            journal.write_now(batch(3))
    monkeypatch.undo()
    assert readable(folder) == [batch(1)]


def test_a_sync_that_the_system_refuses_stops_acknowledgement_in_a_process(folder: Path) -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    for number in (1, 3, 6):
        target = folder.with_name(f"journal{number}")
        under = ("strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=fdatasync",
                 "-e", f"inject=fdatasync:error=EIO:when={number}")  # fmt: skip
        said = program(target, "one", "8", under=under)
        good = [f"acknowledged {one}" for one in range(1, number)]
        assert said == ["open 0", *good, *(f"JournalBroken {one}" for one in range(number, 9)), "broken"]
        assert [one.first for one in readable(target)][: number - 1] == list(range(1, number))


def test_a_write_that_fails_for_another_reason_ends_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(folder) as journal:
        journal.write_now(batch(1))
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", failing(errno.EIO))
            with pytest.raises(JournalBroken, match="could not be written"):
                journal.write_now(batch(2))
        with pytest.raises(JournalBroken):
            journal.write_now(batch(3))
    assert readable(folder) == [batch(1)]


def test_a_fault_in_the_thread_leaves_nobody_waiting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> bytes:
        raise MemoryError

    with opened(folder) as journal:
        monkeypatch.setattr("hipq.journal.append.encode", fault)
        with pytest.raises(JournalBroken, match="MemoryError"):
            journal.write_now(batch(1))


# -- a disk that is full ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("left", [0, 1, 60, 150, 260])
def test_a_full_disk_is_said_and_used_again_when_it_has_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, left: int
) -> None:
    room = Room(monkeypatch, number)
    with opened(folder) as journal:
        journal.write_now(batch(1))
        length = file(folder, 1).stat().st_size
        room.left = left
        for _ in range(2):
            with pytest.raises(JournalFull):
                journal.write_now(batch(2, b"x" * 300))
            assert file(folder, 1).stat().st_size == length, "what was written of it is gone again"
            assert not file(folder, 2).exists()
        assert journal.broken is None
        room.left = 1 << 40
        journal.write_now(batch(3))
        assert drain(journal) == [batch(1), batch(3)]
    with opened(folder, start=False) as journal:
        assert journal.found == []


def test_everybody_in_a_group_that_did_not_fit_is_told_and_none_of_it_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Exception | None] = []
    room = Room(monkeypatch)
    real = os.fdatasync
    with opened(folder) as journal:

        def gather(descriptor: int) -> None:
            monkeypatch.setattr(os, "fdatasync", real)
            for number in (2, 3, 4):
                journal.write(batch(number), told.append)
            room.left = 300  # two of them
            thread.start()
            until(lambda: len(journal._appender._gathered) == 4)
            real(descriptor)

        errors: list[type[Exception]] = []
        thread = threading.Thread(target=lambda: errors.append(raised(journal.wsync)))
        monkeypatch.setattr(os, "fdatasync", gather)
        journal.write_now(batch(1))
        thread.join()
        assert errors == [JournalFull], "who waited for them hears it"
        assert [type(error) for error in told] == [JournalFull] * 3
        journal.wsync()  # and it is not said twice
    assert readable(folder) == [batch(1)]


def test_who_waits_for_what_is_being_written_hears_that_it_did_not_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(monkeypatch)
    with opened(folder) as journal:
        journal.write_now(batch(1))

        def full(*_: object) -> int:
            thread.start()
            until(lambda: len(journal._appender._gathered) == 1)
            raise OSError(errno.ENOSPC, "No space left on device")

        errors: list[type[Exception]] = []
        thread = threading.Thread(target=lambda: errors.append(raised(journal.wsync)))
        monkeypatch.setattr(room, "_real", full)
        with pytest.raises(JournalFull):
            journal.write_now(batch(2))
        thread.join()
        assert errors == [JournalFull]
        journal.wsync()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def raised(call: Callable[[], None]) -> type[Exception]:
    with pytest.raises(JournalError) as caught:
        call()
    return caught.type


def test_without_room_for_a_new_segment_the_journal_waits_for_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(monkeypatch)
    with opened(folder, segment_bytes=1) as journal:
        journal.write_now(batch(1))
        room.left = 50
        with pytest.raises(JournalFull):
            journal.write_now(batch(2))
        assert [path.name for path in folder.glob("*.journal")] == [file(folder, 1).name]
        room.left = 1 << 40
        journal.write_now(batch(3))
        assert drain(journal) == [batch(1), batch(3)]


def test_too_many_open_files_are_no_reason_to_give_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(folder, segment_bytes=1) as journal:
        journal.write_now(batch(1))
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", failing(errno.EMFILE))
            with pytest.raises(JournalError, match="could not be made: too many open files"):
                journal.write_now(batch(2))
        journal.write_now(batch(3))
        assert drain(journal) == [batch(1), batch(3)]


def test_what_cannot_be_cut_back_ends_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a batch is at the end: what is written behind it now would not be found."""
    room = Room(monkeypatch)
    with opened(folder) as journal:
        journal.write_now(batch(1))
        room.left = 100
        with monkeypatch.context() as patched:
            patched.setattr(os, "ftruncate", failing(errno.EIO))
            with pytest.raises(JournalBroken, match="could not be cut back"):
                journal.write_now(batch(2))
        room.left = 1 << 40
        with pytest.raises(JournalBroken):
            journal.write_now(batch(3))
    with opened(folder) as journal:
        assert [one.kind for one in journal.found] == ["cut"]
        assert drain(journal) == [batch(1)]


def test_a_limit_on_files_is_a_full_disk_and_later_it_is_not(folder: Path) -> None:
    """In a process whose files may have 4,000 bytes: the system says so in earnest."""
    opening, *said = program(folder, "small", "4000")
    assert opening == "open 0"
    assert said[20:] == ["JournalFull 21", "acknowledged 22", "acknowledged 23", "good"]
    acknowledged = [int(line.split()[1]) for line in said if line.startswith("acknowledged")]
    full = [line for line in said[:20] if line.startswith("JournalFull")]
    assert 1 <= len(full) <= 5, "the next one goes into a new file"
    batches, found = examined(folder)
    assert [one.first for one in batches] == acknowledged
    assert found.problems == []


def test_somebody_else_who_writes_to_it_ends_it(folder: Path) -> None:
    """The lock was removed by hand, and a second process has begun the next segment."""
    with opened(folder, segment_bytes=1, start=False) as journal:
        journal.write_now(batch(1))
        (folder / "lock").unlink()
        other = Journal(folder)
        other.write_now(batch(2))
        other.close()
        with pytest.raises(JournalBroken, match="somebody else writes to this journal"):
            journal.write_now(batch(3))
    assert readable(folder) == [batch(1), batch(2)]


# -- somebody removes it ----------------------------------------------------------------------------------------------
def test_a_segment_that_somebody_removed_takes_nothing_more(folder: Path) -> None:
    with opened(folder) as journal:
        journal.write_now(batch(1))
        file(folder, 1).unlink()
        with pytest.raises(JournalBroken, match="removed by somebody else"):
            journal.write_now(batch(2))
        assert journal.broken
        with pytest.raises(JournalBroken):
            journal.write_now(batch(3))


@pytest.mark.parametrize("how", ["removed", "moved", "replaced", "lock"])
def test_a_folder_that_is_not_there_any_more_is_noticed(folder: Path, how: str) -> None:
    with opened(folder) as journal:
        journal.write_now(batch(1))
        journal.look()
        assert not journal.broken
        if how == "removed":
            shutil.rmtree(folder)
        elif how == "lock":
            (folder / "lock").unlink()  # another daemon could have it now
        else:
            folder.rename(folder.with_name("elsewhere"))
        if how == "replaced":
            folder.mkdir()
        journal.look()
        assert journal.broken
        with pytest.raises(JournalBroken, match="was removed"):
            journal.write_now(batch(2))


def test_before_anything_is_written_a_folder_that_is_gone_acknowledges_nothing(folder: Path) -> None:
    with opened(folder) as journal:
        shutil.rmtree(folder)
        with pytest.raises(JournalError):
            journal.write_now(batch(1))
