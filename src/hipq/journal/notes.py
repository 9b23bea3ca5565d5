"""Files beside the journal in its folder: a text that the daemon keeps there, and the free space."""

from __future__ import annotations

import os
from zlib import crc32

from hipq.journal.folder import Folder, read_at


def keep(folder: Folder, name: str, text: bytes) -> None:
    """Keep a text, in place of the previous one; it is on disk when this returns."""
    folder.write(name, b"%08x\n%b" % (crc32(text), text))


def kept(folder: Folder, name: str) -> bytes:
    """The text that was kept; empty if there is none, or it is damaged."""
    try:
        descriptor = folder.open(name)
    except FileNotFoundError:
        return b""
    try:
        total, _, text = read_at(descriptor, 0, os.fstat(descriptor).st_size).partition(b"\n")
    finally:
        os.close(descriptor)
    return text if total == b"%08x" % crc32(text) else b""


def is_there(folder: Folder, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def free_bytes(folder: Folder) -> int:
    """Bytes that an ordinary user can still write to the disk; -1 if unknown."""
    try:
        found = os.fstatvfs(folder.descriptor)
    except OSError:
        return -1
    return found.f_bavail * found.f_frsize
