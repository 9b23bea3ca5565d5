"""The database that is measured: the one that was named, or a new file that is removed afterwards."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hipq.errors import Invalid
from hipq.stores.open import url_of

_PREFIX: Final = "hipq-bench-"
_FILE: Final = "bench.db"
_FILES: Final = {_FILE, *(f"{_FILE}-{kind}" for kind in ("wal", "shm", "hipq", "journal"))}
"""All files that a run creates. A folder with other files in it is somebody's own."""


class BenchmarkDatabase(NamedTuple):
    url: str
    file: Path | None
    """The file of a SQLite database."""
    temporary: bool = False


@contextmanager
def chosen_database(db: str | None) -> Iterator[BenchmarkDatabase]:
    """`db`, or the environment's, or a new SQLite file in the current directory, whose disk is measured."""
    named = db or os.environ.get("HIPQ_DATABASE_URL")
    if named:
        url = url_of(named)
        yield BenchmarkDatabase(url, _file_of(url))
        return
    _remove_leftovers()
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="."))
    except OSError as error:
        raise Invalid(f"cannot make a database in {_here()}: {error.strerror}; name one with --db") from None
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)  # held while the run lives, to show that it is not a leftover
        yield BenchmarkDatabase(f"sqlite:///{folder}/{_FILE}", folder / _FILE, temporary=True)
    finally:
        _remove(folder)
        os.close(held)


def _file_of(url: str) -> Path | None:
    if url == "sqlite://":
        raise Invalid("a database in memory cannot be measured: no other process can work on it; leave out --db")
    if not url.startswith("sqlite:///"):
        return None
    file = Path(url.removeprefix("sqlite:///"))
    try:
        there = file.exists()
    except OSError as error:
        raise Invalid(f"cannot look for the database file {file}: {error.strerror}") from None
    if not there:  # opening it would create one, and leave it
        raise Invalid(f"there is no database file {_here() / file}; without --db a new one is made and removed")
    return file


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError:
        return Path("a directory that was removed")


def _remove_leftovers() -> None:
    """Remove the folders of killed runs: their locks are free."""
    for folder in Path().glob(f"{_PREFIX}*"):
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # not a run's, or just removed by another
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (folder / _FILE).exists():
                _remove(folder)
        except BlockingIOError:
            pass  # it is being measured
        finally:
            os.close(held)


def _remove(folder: Path) -> None:
    """Remove a folder with the files that a run created, but not with others."""
    try:
        found = set(os.listdir(folder))
        if found <= _FILES:
            for name in found:
                (folder / name).unlink()
            folder.rmdir()
    except OSError:
        pass  # the next run finds it
