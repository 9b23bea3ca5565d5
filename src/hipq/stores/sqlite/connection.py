"""One SQLite connection a process, every write under one lock, and no trust left after a failed sync.

- Below SQLite 3.51.3 two connections that write or checkpoint at once can corrupt a WAL file (DESIGN 5.14). There,
  every hipq writer also holds a lock file beside the database, and so does whoever opens or closes it.
  A user's own connection (`conn=`) does not hold it, since its commit cannot be hooked: let one process write that way.
- After a failed fsync SQLite may acknowledge later commits that are not on disk. The first such error is remembered
  and every later use refused.
- SQLite does not notice that its file was deleted, renamed or replaced (see `open_files`). Each use looks before it
  begins, and each write once more after its commit: what is acknowledged was at the path at that moment.
- A connection must not cross a fork. SQLite keeps its locks on a file in the process's memory: a child that inherits an
  open connection believes it has locks it has not, and what it commits can vanish. So a fork closes the connection
  first, and parent and child each open another when they need one.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final
from weakref import WeakSet

from hipq import files
from hipq.errors import (
    Invalid,
    Moved,
    StoreBroken,
    StoreBusy,
    StoreDefect,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from hipq.stores.sqlite.open_files import Inode, OpenFiles, inode, replaced

BUSY_SECONDS: Final = 5.0
PAGES_IN_LOG: Final = 16_000
"""How long the log may become (64 MB) before its pages are written to the database file. A job's row and its entries
in indexes lie anywhere: with the 1,000 pages that SQLite takes, 200 answers to 100,000 waiting jobs fill it, and their
pages are written twice. What is committed is safe in the log."""
SAFE_VERSION: Final = (3, 51, 3)
OLDEST_VERSION: Final = (3, 35, 0)
_TRIES: Final = 5
LACKS_TABLES: Final = (
    "SQLite: database is locked, and lacks tables of hipq's: if this program has a transaction open on the file, make "
    "them before it begins (app.migrate(), `hipq migrate`, manage.py hipq_migrate)"
)
"""Also of a file that cannot be opened: it would not be locked against that if hipq had set it to WAL before."""


def translated(error: Exception) -> StoreError:
    """A database error as one of hipq's: it may pass, it never will, or nothing can be trusted any more."""
    if isinstance(
        error, (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, OverflowError, UnicodeError)
    ):
        return StoreRefused(f"SQLite will not store this: {error}")
    name = getattr(error, "sqlite_errorname", None) or ""
    if name == "SQLITE_IOERR_SHMSIZE":  # the index of the log, which is made anew whenever it is lacking
        return StoreUnavailable("SQLite: database or disk is full: there is no room for the -shm file")
    if name.startswith(("SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreBroken(f"SQLite: {error} ({name}); later writes cannot be trusted, so this process stops using it")
    if "syntax error" in str(error):
        return StoreDefect(f"a defect of hipq's, and no outage: SQLite does not understand a statement: {error}")
    return StoreUnavailable(f"SQLite: {error}")


def is_locked(error: BaseException | None) -> bool:
    return (getattr(error, "sqlite_errorname", None) or "").startswith("SQLITE_BUSY")


def signpost(conn: sqlite3.Connection) -> Moved | None:
    """The place that the jobs of this database have moved to, if they have: see `leave`."""
    if not conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'hipq_moved'").fetchall():
        return None
    ((url, move),) = conn.execute("SELECT url, move FROM hipq_moved").fetchall()
    return Moved(url, move)


_opened: WeakSet[Connection] = WeakSet()
_inherited: list[sqlite3.Connection] = []


class Connection:
    def __init__(self, path: str, on_fork: Callable[[], None] = lambda: None) -> None:
        if sqlite3.sqlite_version_info < OLDEST_VERSION:
            raise Invalid(f"hipq needs SQLite 3.35 or later; this Python has {sqlite3.sqlite_version}")
        self._name = os.path.abspath(path) if path else ""
        self.path = os.path.realpath(path) if path else ""  # as SQLite has it: its log is beside that
        self._on_fork = on_fork
        self._needs_lock_file = path != "" and sqlite3.sqlite_version_info < SAFE_VERSION
        self._broken: StoreBroken | None = None
        self._conn: sqlite3.Connection | None = None
        self._files: OpenFiles | None = None  # None in memory
        self._database: Inode | None = None
        self._closed = False
        self._start()
        with self._alone(), self._lock:
            self._usable()
        _opened.add(self)

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()  # one thread at a time uses the connection
        self._writers = threading.RLock()  # one thread at a time waits for the lock file: readers need not wait with it
        self._lock_file = -1
        if self._needs_lock_file:
            try:
                self._lock_file = files.make(self.path + "-hipq")
            except OSError as error:
                raise StoreUnavailable(f"cannot open {self.path}-hipq: {error.strerror}") from None

    def _connect(self) -> sqlite3.Connection:
        """A connection, and a record of the files that it has open."""
        for _ in range(_TRIES if self.path else 0):
            before = inode(self._name)
            if self._database not in (None, before) or os.path.realpath(self._name) != self.path:
                raise replaced(self._name)  # while it was closed for a fork, or since
            conn = self._opened()
            self._files = OpenFiles(self._name, self.path, self._lock_file)
            if before is not None and inode(self._name) == before:
                self._database = before
                return conn
            conn.close()  # it was made just now, or replaced: which of the two SQLite has open is not certain
        if not self.path:
            return self._opened()
        raise StoreUnavailable(f"SQLite: {self._name} is another file at each look")

    def _opened(self) -> sqlite3.Connection:
        try:
            if self.path:
                files.make_database(self.path)  # its log and the log's index get the same mode
            conn = sqlite3.connect(
                self.path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False,
                cached_statements=512,
            )  # fmt: skip
            conn.execute("PRAGMA journal_mode = WAL").fetchone()
            conn.execute("PRAGMA synchronous = FULL")
            conn.execute(f"PRAGMA wal_autocheckpoint = {PAGES_IN_LOG}")
            conn.execute("PRAGMA user_version").fetchone()  # opens the log
        except sqlite3.Error as error:
            raise StoreUnavailable(LACKS_TABLES) if is_locked(error) else translated(error) from error
        except OSError as error:
            raise StoreUnavailable(f"cannot open {self.path}: {error.strerror}") from None
        for suffix in ("-wal", "-shm") if self.path else ():
            files.share(self.path + suffix)  # SQLite does so only if root runs it
        return conn

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock file, where this SQLite needs one. The kernel frees it if the process dies."""
        if self._lock_file < 0:
            yield
            return
        with self._writers:
            self._take_lock_file()
            try:
                yield
            finally:
                try:
                    fcntl.flock(self._lock_file, fcntl.LOCK_UN)
                except OSError as error:
                    raise self._not_locked("unlock", error) from None

    def _not_locked(self, verb: str, error: OSError) -> StoreUnavailable:
        """The error for a lock that could not be had. A file system may refuse locks for a while, as a network's does
        whose server has no room for more."""
        return StoreUnavailable(f"cannot {verb} {self.path}-hipq: {error.strerror}")

    @contextmanager
    def _alone_if_possible(self) -> Iterator[None]:
        """Hold the lock file, unless somebody else holds it for long: they have a connection, too, so ours is not the
        last."""
        with ExitStack() as stack:
            with suppress(StoreUnavailable):
                stack.enter_context(self._alone())
            yield

    def _take_lock_file(self) -> None:
        """Wait for the lock file, but not for ever: a stopped process may hold it for hours. SQLite gives up on its own
        lock in the same way."""
        until, pause = time.monotonic() + BUSY_SECONDS, 0.0001
        while True:
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StoreUnavailable(
                        f"SQLite: another process has held {self.path}-hipq for {BUSY_SECONDS:g} s"
                    ) from None
                time.sleep(pause)
                pause = min(pause * 2, 0.005)
            except OSError as error:
                raise self._not_locked("lock", error) from None

    def before_fork(self) -> None:
        """Before a fork: wait until no thread uses the connection, and close it, so that there is nothing a child could
        inherit."""
        self._writers.acquire()
        self._lock.acquire()
        if self.path and self._conn is not None:
            try:
                with self._alone():
                    self._conn.close()
                self._conn = self._files = None  # the last one to close deletes the log and its index
            except StoreUnavailable:
                pass  # the lock file is held for long, as by a move: see `born`

    def after_fork(self) -> None:
        self._lock.release()
        self._writers.release()

    def born(self) -> None:
        """In the child: start anew, since all of this is the parent's."""
        if self._lock_file >= 0:
            os.close(self._lock_file)  # else the lock outlives a parent that dies with it
        if self.path and self._conn is not None:
            _inherited.append(self._conn)  # the parent's: neither used nor closed here
            self._conn = None
        if self.path:
            self._start()
            self._on_fork()

    def _usable(self) -> sqlite3.Connection:
        """The connection, opened if need be. Call it with the lock file and the lock held."""
        if self._broken:
            raise self._broken
        if self._pid != os.getpid():
            raise Invalid("an in-memory database cannot be used from another process; give the app a file")
        if self._closed:
            raise StoreUnavailable("this store was closed")
        if self._conn is None:
            self._conn = self._connect()
        return self._conn

    def check(self) -> None:
        """Raise if the database was deleted, renamed or replaced, or cannot be used. It takes no lock:
        a caller in a transaction of its own would wait here for an engine that waits for that transaction."""
        if self._broken:
            raise self._broken
        if self._files and (path := self._files.changed):
            raise replaced(path)
        if self._files is None and self._database not in (None, inode(self._name)):
            raise replaced(self._name)

    @contextmanager
    def reading(self, patient: bool = True) -> Iterator[sqlite3.Connection]:
        if self._conn is None or (self._files and self._files.changed):
            with self._alone(), self._lock:
                self._check(self._usable())
        if not self._lock.acquire(blocking=patient):
            raise StoreBusy("another thread of this program uses the database")
        try:
            conn = self._usable()
            try:
                yield conn
            except sqlite3.Error as error:
                raise self._moved(conn, error) or self._noted(error) from error
        finally:
            self._lock.release()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed at the end of the block, undone if that raises."""
        with self._alone(), self._lock:
            conn = self._usable()
            try:
                self._check(conn)
                conn.execute("BEGIN IMMEDIATE")
                yield conn
                conn.execute("COMMIT")
                self._check(conn)  # after the commit: else that could go into a file that was just deleted
            except BaseException as error:
                self._undo(conn)
                if isinstance(error, (sqlite3.Error, OverflowError, UnicodeError)):
                    raise self._moved(conn, error) or self._noted(error) from error
                raise

    def _check(self, conn: sqlite3.Connection) -> None:
        """Raise unless all files are at their paths: hold the lock file and the lock. Whoever renamed or replaced the
        database left its log behind: what was acknowledged goes from the log into the database, wherever that is, and
        the log is deleted, or SQLite would apply it to the next file at that path."""
        if not self._files or not (path := self._files.changed):
            return
        if self._files.log_is_ours:
            with suppress(sqlite3.Error):
                (is_busy, *_) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if self._files.moved and not is_busy:
                    self._files.delete_log()
                    self._conn = None  # opened again if the database is put back
                    conn.close()
        raise replaced(path)

    def _moved(self, conn: sqlite3.Connection, error: Exception) -> Moved | None:
        """The error to raise in place of one about a missing table, if a signpost says where the jobs have moved to."""
        return signpost(conn) if "no such table" in str(error) else None

    def _undo(self, conn: sqlite3.Connection) -> None:
        if conn is self._conn and conn.in_transaction:
            try:
                conn.execute("ROLLBACK")
            except sqlite3.Error as error:
                self._noted(error)

    def _noted(self, error: Exception) -> StoreError:
        found = translated(error)
        if isinstance(found, StoreBroken):
            self._broken = found
        if is_locked(error):  # by another program; or by a transaction of this one, which would wait for ever
            return StoreUnavailable(
                f"{found}; if this program has a transaction open on the file, pass conn=, or do this after its commit"
            )
        return found

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        with self._alone_if_possible(), self._lock:  # the last connection to close checkpoints
            self._closed = True
            if self._conn is not None:
                self._conn.close()
                self._conn = None
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1
        _opened.discard(self)


def _before_fork() -> None:
    for connection in _opened:
        connection.before_fork()


def _after_fork() -> None:
    for connection in _opened:
        connection.after_fork()


def _born() -> None:
    for connection in _opened:
        connection.born()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_born)
