"""Quarantine: damaged bytes are moved there, so that nothing is ever thrown away and nobody has to look at it twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hipq.journal.folder import Folder, read_at, refusal, synced, write_all
from hipq.journal.segment import name_of

QUARANTINE: Final = "quarantine"
_PIECE: Final = 1 << 20
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def quarantine_copy(folder: Folder, number: int, offset: int, end: int) -> tuple[str, bool]:
    """Copy some bytes of a segment into quarantine; returns the file, and whether it was there already."""
    source = folder.open(name_of(number))
    try:
        directory = _directory(folder)
        try:
            name = f"{number:020d}.{offset}-{end}"
            for again in range(2, 1000):
                if _is_copy(directory, name, source, offset, end):
                    return f"{QUARANTINE}/{name}", True
                if not _is_there(directory, name):
                    break
                name = f"{number:020d}.{offset}-{end}.{again}"  # the bytes differ from the earlier copy: keep both
            _copy(folder, directory, name, source, offset, end)
            return f"{QUARANTINE}/{name}", False
        finally:
            os.close(directory)
    except OSError as error:
        raise refusal(error, folder.where(QUARANTINE)) from None
    finally:
        os.close(source)


def _is_there(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_copy(directory: int, name: str, source: int, offset: int, end: int) -> bool:
    """Whether an earlier opening made this copy."""
    try:
        copy = os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)
    except FileNotFoundError:
        return False
    try:
        pieces = range(offset, end, _PIECE)
        return os.fstat(copy).st_size == end - offset and all(
            read_at(copy, at - offset, _PIECE) == read_at(source, at, min(_PIECE, end - at)) for at in pieces
        )
    finally:
        os.close(copy)


def _copy(folder: Folder, directory: int, name: str, source: int, offset: int, end: int) -> None:
    target = os.open(f"{name}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFE, 0o600, dir_fd=directory)
    try:
        for at in range(offset, end, _PIECE):
            write_all(target, read_at(source, at, min(_PIECE, end - at)), at - offset)
        synced(target, folder.where(QUARANTINE))
    finally:
        os.close(target)
    os.rename(f"{name}.part", name, src_dir_fd=directory, dst_dir_fd=directory)
    synced(directory, folder.where(QUARANTINE))


def quarantine_move(folder: Folder, number: int) -> str:
    """Move a whole segment, of which nothing can be read, into quarantine."""
    try:
        directory = _directory(folder)
        try:
            name, taken = name_of(number), set(os.listdir(directory))
            free = next(one for one in (name, *(f"{name}.{n}" for n in range(2, len(taken) + 3))) if one not in taken)
            os.rename(name, free, src_dir_fd=folder.descriptor, dst_dir_fd=directory)
            synced(directory, folder.where(QUARANTINE))
        finally:
            os.close(directory)
    except OSError as error:
        raise refusal(error, folder.where(QUARANTINE)) from None
    folder.sync()
    return f"{QUARANTINE}/{free}"


def _directory(folder: Folder) -> int:
    try:
        os.mkdir(QUARANTINE, 0o700, dir_fd=folder.descriptor)
        folder.sync()
    except FileExistsError:
        pass
    return os.open(QUARANTINE, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.descriptor)


@contextmanager
def open_quarantine(folder: Folder) -> Iterator[int]:
    directory = _directory(folder)
    try:
        yield directory
    finally:
        os.close(directory)


def placed(folder: Folder, directory: int, name: str, data: bytes) -> None:
    """Write a file into quarantine, all of it or none."""
    target = os.open(f"{name}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFE, 0o600, dir_fd=directory)
    try:
        write_all(target, data, 0)
        synced(target, folder.where(QUARANTINE))
    finally:
        os.close(target)
    os.rename(f"{name}.part", name, src_dir_fd=directory, dst_dir_fd=directory)
    synced(directory, folder.where(QUARANTINE))
