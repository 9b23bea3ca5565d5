"""The facts about the file a SQLite database is in: its disk, its file system, who may write it, who holds its lock."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hipq import files
from hipq.stores.health.facts import FileHealth
from hipq.stores.sqlite.connection import BUSY_SECONDS, SAFE_VERSION
from hipq.stores.sqlite.moving import is_moving


def look(path: str) -> FileHealth:
    folder = os.path.dirname(os.path.realpath(path))
    disk = os.statvfs(folder)
    log = f"{path}-wal"
    return FileHealth(
        path=os.path.abspath(path),
        size=os.path.getsize(path),
        log_size=os.path.getsize(log) if os.path.exists(log) else 0,
        unwritable=tuple(_unwritable(os.path.abspath(path), folder)),
        file_system=file_system(os.path.realpath(path), _mounts()),
        disk_free=disk.f_bavail * disk.f_frsize,
        disk_size=disk.f_blocks * disk.f_frsize,
        moving=is_moving(path),
        exposed=tuple((name, mode) for name in _files(os.path.abspath(path)) if (mode := files.exposed(name))),
    )


def _files(path: str) -> tuple[str, ...]:
    return path, f"{path}-wal", f"{path}-shm", f"{path}-hipq"


def _unwritable(path: str, folder: str) -> Iterator[str]:
    for name in _files(path):
        if os.path.exists(name) and not os.access(name, os.R_OK | os.W_OK):
            yield name
    if not os.access(folder, os.W_OK | os.X_OK):
        yield folder


def _mounts() -> str:
    try:
        with open("/proc/self/mountinfo", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def file_system(path: str, mounts: str) -> str:
    """The kind of the file system a path is on, as the kernel's list of mounts has it; "" if that does not say."""
    best, kind = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of two on the same point the later one is seen
            best, kind = point, kinds[0]
    return kind


@contextmanager
def holding(path: str) -> Iterator[str]:
    """Hold the lock file while the database is opened, where this SQLite needs that (see `connection`), if there is
    one. Else who holds it and does not let go: then every writer waits for that process."""
    lock = f"{path}-hipq"
    if sqlite3.sqlite_version_info >= SAFE_VERSION or not os.path.exists(lock):
        yield ""
        return
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # told as a file that this user may not write
        yield ""
        return
    try:
        yield "" if _taken(descriptor) else _holder(os.fstat(descriptor))
    finally:
        os.close(descriptor)  # which frees it


def _taken(descriptor: int) -> bool:
    until, pause = time.monotonic() + BUSY_SECONDS, 0.001
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(pause)
            pause = min(pause * 2, 0.05)


def _holder(lock: os.stat_result) -> str:
    place = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    try:
        with open("/proc/locks") as file:
            for line in file:
                fields = line.split()
                if fields[1:3] == ["FLOCK", "ADVISORY"] and fields[5] == place:
                    return f"process {fields[4]}"
    except OSError:
        pass
    return "a process"
