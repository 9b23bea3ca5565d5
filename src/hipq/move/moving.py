"""`hipq move`: the jobs of a SQLite file go to PostgreSQL or MariaDB while programs use them.

    drain    engines claim nothing more; handlers that are running end
    lock     nobody writes to the file; all can read it
    copy     everything, in one transaction of the other database; in MariaDB in many, and nobody may use its tables
    verify   rows and checksums of each table, read back from there
    arrive   on PostgreSQL that transaction commits; nobody may use its tables yet
    leave    the file gets its signpost, and the lock is gone: programs go on over there
    open     the tables over there may be used

Killed before `arrive` is done, nothing has happened, but for half a copy in MariaDB. Killed before `leave` is done, a
copy is of no use, no program would take it for the jobs, and the next move throws it away. Killed after that, the first
program that follows the signpost does the rest, and so does the next move. At no moment are the jobs in use in two
places, or in none.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import AbstractContextManager, closing, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast
from urllib.parse import quote

from hipq.errors import Conflict, HipqError, Invalid, Moved
from hipq.move.copy import MovedTable, Summing
from hipq.stores.open import MARIADB, open_store, url_of, without_password

if TYPE_CHECKING:
    from hipq.move.from_sqlite import SqliteSource
    from hipq.move.target import Target
    from hipq.stores.relocated import Destination

WAIT: Final = 60.0
"""Seconds that running handlers have to end."""
_LOOK: Final = 0.1
STEPS: Final = ("drain", "lock", "copy", "verify", "arrive", "leave", "open")


class MoveReport(NamedTuple):
    source: str
    target: str
    tables: list[MovedTable]
    seconds: dict[str, float]
    """The seconds of each step; programs could not write from `lock` to `leave`."""
    others: list[str]
    """Tables in the file that are not hipq's."""


class MoveProgress:
    """Gets the progress of a move while it goes on."""

    def step(self, name: str) -> None:
        """A step begins."""

    def running(self, ids: list[int]) -> None:
        """These jobs still run, while the move waits for them."""

    def total(self, rows: int) -> None:
        """The number of rows to copy and to read back, together."""

    def advance(self, rows: int) -> None:
        """Further rows are copied or read back."""


def move(source: str, target: str, *, wait: float = WAIT, progress: MoveProgress | None = None) -> MoveReport:
    """Move all jobs from a SQLite file to a server's database; the module's docstring has the steps."""
    path, target = _file(source), url_of(target)
    if target.startswith("sqlite"):
        raise Invalid(
            "jobs move to a server: the target must be like postgresql://user@host/database, or mariadb://..."
        )
    from hipq.stores.sqlite.moving import only_mover

    moving = _Move(path, target, wait, progress or MoveProgress())
    try:
        with only_mover(path):
            tables, others = moving.run()
    finally:
        moving.there.close()
    moving.end()
    return MoveReport(f"sqlite:///{os.path.abspath(path)}", moving.shown, tables, moving.seconds, others)


class _Side(Protocol):
    """The module of a database that jobs move to."""

    def check(self, store: Any, url: str, move: str) -> None: ...
    def opened(self, store: Any, url: str, move: str) -> AbstractContextManager[Target]: ...


class _Move:
    """One move, and the seconds of its steps."""

    def __init__(self, path: str, target: str, wait: float, progress: MoveProgress) -> None:
        self._path, self._target, self._wait, self._progress = path, target, wait, progress
        self.there, self.shown = cast("Destination", open_store(target)), without_password(target)
        self.seconds: dict[str, float] = {}
        self._began, self._step = time.monotonic(), ""

    @property
    def _side(self) -> _Side:
        kind = "mariadb" if self._target.startswith(MARIADB) else "postgres"
        return cast("_Side", import_module(f"hipq.move.to_{kind}"))

    def begin(self, step: str) -> None:
        self.end()
        self._began, self._step = time.monotonic(), step
        self._progress.step(step)

    def end(self) -> None:
        if self._step:
            self.seconds[self._step] = round(time.monotonic() - self._began, 3)

    def run(self) -> tuple[list[MovedTable], list[str]]:
        """The tables that were moved, and those of the file that are not hipq's."""
        from hipq.move.from_sqlite import SqliteSource
        from hipq.stores.sqlite.store import SqliteStore

        try:
            here = SqliteStore(self._path)
        except Moved as moved:
            if without_password(moved.url) != self.shown:
                raise Conflict(f"{self._path} has moved to {without_password(moved.url)} already") from None
            self.begin("open")
            self.there.arrived(moved.move)
            return [], []
        origin = SqliteSource(here)
        try:
            name = origin.name()
            self._side.check(self.there, self.shown, name)  # before anybody has to wait
            while True:
                self._drain(origin)
                self.begin("lock")
                with origin.locked() as alone:
                    if alone:
                        tables, others = self._copy(origin, name), origin.others()
                        self.begin("leave")
                        origin.leave(self._target, name)
                        break
        except BaseException:
            with suppress(HipqError):
                origin.stay()
            raise
        finally:
            here.close()
        self.begin("open")
        self.there.arrived(name)
        return tables, others

    def _drain(self, origin: SqliteSource) -> None:
        self.begin("drain")
        until = time.monotonic() + self._wait
        while running := origin.drain():
            self._progress.running(running)
            if time.monotonic() >= until:
                some = ", ".join(map(str, running[:5])) + (", ..." if len(running) > 5 else "")
                raise Conflict(
                    f"handlers of {len(running)} jobs are still running after {self._wait:g} s ({some}), and nothing "
                    "was moved: wait longer with --wait, or cancel them"
                )
            time.sleep(_LOOK)

    def _copy(self, origin: SqliteSource, name: str) -> list[MovedTable]:
        snapshot, advance = origin.snapshot(), self._progress.advance
        self.begin("copy")
        self._progress.total(2 * sum(origin.count(table) for table in snapshot.tables))
        sent: list[MovedTable] = []
        with self._side.opened(self.there, self.shown, name) as destination:
            destination.clear()
            destination.build(snapshot)
            for table in snapshot.tables:
                summing = Summing(table)
                destination.fill(table, summing.through(origin.rows(table)), advance)
                sent.append(summing.sum)
            self.begin("verify")
            for table, one in zip(snapshot.tables, sent, strict=True):
                summing = Summing(table)
                for page in summing.through(destination.rows(table)):
                    advance(len(page))
                if (found := summing.sum) != one:
                    raise HipqError(
                        f"{one.name} has arrived with {found.rows} rows ({found.checksum}), and {one.rows} "
                        f"({one.checksum}) were sent: nothing was moved"
                    )
            destination.settle(snapshot)
            self.begin("arrive")
        return sent


def _file(source: str) -> str:
    url = url_of(source)
    path = url.removeprefix("sqlite:///")
    if path == url:
        raise Invalid("jobs move from a SQLite file: the source must be like sqlite:///shop.db")
    if not os.path.exists(path):
        raise Invalid(f"there is no database file {os.path.abspath(path)}")
    if not _has_jobs(path):  # opening it as a store would make it one
        raise Invalid(f"{os.path.abspath(path)} has no hipq tables: there is nothing to move")
    return path


def _has_jobs(path: str) -> bool:
    """Whether this is a database of hipq's, or was one."""
    query = "SELECT 1 FROM sqlite_master WHERE name IN ('hipq_queues', 'hipq_moved')"
    try:
        with closing(sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro", uri=True)) as conn:
            return bool(conn.execute(query).fetchall())
    except sqlite3.Error as error:
        raise Invalid(f"{os.path.abspath(path)} cannot be read: {error}") from None
