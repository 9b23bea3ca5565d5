"""Folders that are not opened: in one sentence, and left as they are."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from zlib import crc32

import pytest

from hipq.errors import JournalBroken, JournalFull, JournalRefused
from hipq.journal import Journal
from tests.journal.helpers import batch, descriptors, drain, file, opened, readable, written


def refused(folder: Path) -> str:
    before = descriptors()
    with pytest.raises(JournalRefused) as caught:
        Journal(folder)
    assert descriptors() == before, "nothing stays open"
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_second_writer_is_refused_in_this_process_and_in_another(folder: Path) -> None:
    with opened(folder):
        said = refused(folder)
        assert str(folder) in said
        assert f"in use by another process ({os.getpid()})" in said
    written(folder, [batch(1)])


@pytest.mark.parametrize("line", [
    b"#:Journal version=2,journal=%b,segment=1,after=0:0,salt=%b" % (b"a" * 32, b"b" * 32),
    b"#:Journal version=17,whatever=it says",
])  # fmt: skip
@pytest.mark.parametrize("is_summed", [True, False])
def test_a_journal_of_another_version_is_refused_and_left_alone(folder: Path, line: bytes, is_summed: bool) -> None:
    written(folder, [batch(1)], [batch(2)])
    data = line + (b",sum=%08x" % crc32(line) if is_summed else b"") + b"\nwhat only they can read"
    file(folder, 2).write_bytes(data)
    assert "has the version " in refused(folder)
    assert file(folder, 2).read_bytes() == data
    assert not (folder / "quarantine").exists()


@pytest.mark.parametrize("name", ["lock", "identity", "00000000000000000001.journal", "00000000000000000002.journal"])
def test_a_symbolic_link_is_not_followed(folder: Path, tmp_path: Path, name: str) -> None:
    written(folder, [batch(1)])
    target = tmp_path / "elsewhere"
    if (folder / name).exists():
        (folder / name).rename(target)
    else:
        target.write_bytes(b"precious")
    before = target.read_bytes()
    (folder / name).symlink_to(target)
    assert f"{name} in the journal {folder} is a symbolic link" in refused(folder)
    assert target.read_bytes() == before


def test_a_quarantine_that_is_a_symbolic_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    written(folder, [batch(1)])
    file(folder, 1).write_bytes(file(folder, 1).read_bytes() + b"\x00")
    (folder / "quarantine").symlink_to(tmp_path)
    assert "quarantine in the journal" in refused(folder)
    assert os.listdir(tmp_path) == ["journal"]


@pytest.mark.parametrize("name", ["lock", "00000000000000000002.journal"])
def test_what_is_not_a_file_is_refused(folder: Path, name: str) -> None:
    folder.mkdir()
    os.mkfifo(folder / name)  # opening it must not wait for whoever has its other end
    assert "is not a file" in refused(folder)
    (folder / name).unlink()
    (folder / name).mkdir()
    assert name in refused(folder)


def test_a_folder_that_is_a_file_or_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "is not a folder" in refused(tmp_path / "file")
    assert "is not a folder" in refused(tmp_path / "file" / "journal")
    assert "hipq" in refused(Path("/proc/hipq"))
    assert "/proc/self" in refused(Path("/proc/self"))
    with pytest.raises(JournalRefused, match="is not the name of a folder"):
        Journal("a\0b")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "loop" in refused(tmp_path / "loop")


def test_a_folder_that_cannot_be_written_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stops root, so the system's answer is made up."""
    written(folder, [batch(1)])
    real = os.open

    def read_only(path: str, flags: int, *rest: int, **more: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", read_only)
    assert refused(folder) == f"lock in the journal {folder} cannot be used: read-only file system"


def test_other_files_in_the_folder_are_left_alone(folder: Path) -> None:
    written(folder, [batch(1)])
    (folder / "1.journal").write_text("mine")
    (folder / "notes.txt").write_text("mine")
    with opened(folder) as journal:
        assert [(one.kind, one.file) for one in journal.found] == [("note", "1.journal")]
        assert drain(journal) == [batch(1)]
    assert (folder / "1.journal").read_text() == (folder / "notes.txt").read_text() == "mine"


def test_without_room_to_put_damage_aside_nothing_is_touched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(folder, [batch(1)])
    data = file(folder, 1).read_bytes() + b"rubbish"
    file(folder, 1).write_bytes(data)
    real = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if data == b"rubbish":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(JournalFull, match="no room on the disk for quarantine"):
            Journal(folder)
    assert file(folder, 1).read_bytes() == data
    assert readable(folder) == [batch(1)]


def test_a_sync_that_fails_while_opening_refuses_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(folder, [batch(1)])

    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        with pytest.raises(JournalBroken, match="could not be synced"):
            Journal(folder)
    assert readable(folder) == [batch(1)]
