"""The file that a database is in. A database that was made in another file is a copy, perhaps restored from a backup.

The file's time of birth tells: a file keeps it when it is renamed, and a copy has its own. Its inode number would not
do: file systems give the number of a deleted file to the next, and some give out others after each mount. Nor would its
device number, which may be another after every start of a container.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800
_MASK_AT, _BTIME_AT, _STATX_SIZE = 0, 80, 256


def place(path: str) -> dict[str, str]:
    born = _born(path)
    return {"born": str(born)} if born else {"inode": str(os.stat(path).st_ino)}


def _born(path: str) -> int:
    """When the file was made, in nanoseconds; 0 where the system or the file system does not say. Python has no statx
    before 3.15."""
    try:
        statx = ctypes.CDLL(None).statx
    except (AttributeError, OSError):
        return 0
    found = ctypes.create_string_buffer(_STATX_SIZE)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, found) != 0:
        return 0
    (mask,) = struct.unpack_from("=I", found, _MASK_AT)
    seconds, nanoseconds = struct.unpack_from("=qI", found, _BTIME_AT)
    return int(seconds * 1_000_000_000 + nanoseconds) if mask & _STATX_BTIME else 0
