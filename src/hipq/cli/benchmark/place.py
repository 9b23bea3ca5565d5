"""Which database is measured: the one that was named, or a new file that is removed afterwards."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hipq.errors import Invalid

_PREFIX: Final = "hipq-bench-"


class Place(NamedTuple):
    url: str
    file: Path | None
    """The file of a SQLite database."""
    temporary: bool = False


@contextmanager
def chosen_place(db: str | None) -> Iterator[Place]:
    """`db`, or what the environment says, or a new SQLite file in the current directory: its disk is measured."""
    url = db or os.environ.get("HIPQ_DATABASE_URL")
    if url:
        yield Place(url, _file_of(url))
        return
    _remove_leftovers()
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="."))
    except OSError as error:
        raise Invalid(f"cannot make a database in {os.getcwd()}: {error.strerror}; name one with --db") from None
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)  # as long as we live: it is not somebody's leftover
        yield Place(f"sqlite:///{folder}/bench.db", folder / "bench.db", temporary=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _file_of(url: str) -> Path | None:
    if url in ("sqlite://", "sqlite:///:memory:"):
        raise Invalid("a database in memory cannot be measured: no other process can work on it; leave out --db")
    if not url.startswith("sqlite:///"):
        return None
    file = Path(url.removeprefix("sqlite:///"))
    if not file.exists():  # opening it would make one, and leave it
        raise Invalid(f"there is no database file {file.absolute()}; without --db a new one is made and removed")
    return file


def _remove_leftovers() -> None:
    """Folders of runs that were killed: nobody holds them any more."""
    for folder in Path().glob(f"{_PREFIX}*"):
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # not ours, or just removed by another
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass  # it is being measured
        finally:
            os.close(held)
