"""What one database must be able to do, so that the verbs that all SQL stores share run on it.

The shared verbs, and the files of SQL that they share, take for granted that

- text is compared byte by byte, which for UTF-8 is how Python compares it too: ranks, lanes and names are compared in
  SQL and in Python;
- a statement sees what was committed while the statement before it waited for a lock: of two transactions that lock the
  same key or queue, the second sees what the first has done;
- a lock lasts until its transaction ends, and no longer;
- a write can return rows (RETURNING), and the database says how many rows it changed;
- integers have 64 bits, and `LIMIT`, `OFFSET`, `UNION ALL` and `ON CONFLICT DO NOTHING` mean what they mean in SQLite
  and PostgreSQL.

Besides `Sql` and `Dialect`, a store defines what inserts jobs (`Inserting`), what saves changes (`Settling._write` in
settle.py), an inbox (`live` and `insert` of `SqlInbox` in inbox.py), a rulebook and its reader (`Rulebook` and
`QueueReader.more` in rule_claims.py) and `_prune` (jobs.py). It may override `_forget_leases` (jobs.py)
and `_take_ticket` (rules.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hipq.job.answer import Kept
from hipq.job.model import Brief, Change, New, Row
from hipq.stores.claim_groups import RankPosition
from hipq.stores.filters import Filter
from hipq.stores.sql.statements import Statements
from hipq.stores.values import Stored
from hipq.stores.waker import Waker

if TYPE_CHECKING:
    from hipq.stores.sql.inbox import SqlInbox
    from hipq.stores.sql.settle import Settling

T = TypeVar("T")
Read = TypeVar("Read", Row, Brief, Kept)


class Sql(ABC):
    """A connection, and the statements of a store: each a file, by its name, for one queue or for none."""

    def __init__(self, conn: Any, statements: Statements[Any]) -> None:
        self.conn = conn
        self.statements = statements

    @abstractmethod
    def run(self, query: Any, values: Mapping[str, Any], *, once: bool = False) -> list[Any]:
        """The rows that a statement finds, as tuples or lists. `once`: the statement is not worth preparing."""

    def found(self, name: str, queue: int = 0, /, **values: Any) -> list[Any]:
        """The rows that the statement of a file finds."""
        return self.run(self.statements.of(name, queue), values)

    @abstractmethod
    def do(self, query: Any, values: Mapping[str, Any], *, once: bool = False) -> int:
        """How many rows a statement changed."""

    def changed(self, name: str, queue: int = 0, /, **values: Any) -> int:
        """How many rows the statement of a file changed."""
        return self.do(self.statements.of(name, queue), values)

    def rows_of(self, text: str, /, **values: Any) -> list[Any]:
        """The rows that this SQL finds, which is written as in the files."""
        return self.run(self.statements.spell(text), values, once=True)

    def write(self, text: str, /, **values: Any) -> int:
        """How many rows this SQL changed."""
        return self.do(self.statements.spell(text), values, once=True)

    def rows(self, name: str, queue: int = 0, /, **values: Any) -> list[Row]:
        """The jobs that the statement of a file finds, with their payloads."""
        return self.read(Row, self.statements.of(name, queue), values)

    def kept(self, name: str, /, **values: Any) -> list[Kept]:
        """The answers that the statement of a file finds."""
        return self.read(Kept, self.statements.of(name), values)

    @abstractmethod
    def read(self, kind: type[Read], query: Any, values: Mapping[str, Any], *, once: bool = False) -> list[Read]:
        """The rows that a statement finds, as values of this kind."""

    @abstractmethod
    def of_each(self, name: str, queues: Sequence[int]) -> list[Any]:
        """The statement of a file for all of these queues at once, in as few parts as the database allows."""


class Inserting(Protocol):
    def many(self, conn: Any, jobs: Sequence[New], all_or_nothing: bool) -> list[Stored]:
        """Add jobs, each under a new id."""

    def given(self, conn: Any, jobs: Sequence[tuple[int, New]]) -> None:
        """Add jobs under ids that they already have."""


class Dialect(ABC):
    """A store in SQL: its statements, and how it runs them."""

    _statements: Statements[Any]
    _insert: Inserting
    _settle: Settling

    @property
    @abstractmethod
    def waker(self) -> Waker: ...

    @abstractmethod
    def _reading(self, *, long: bool = False, patient: bool = True) -> AbstractContextManager[Sql]:
        """A context for statements that read. `long`: they read a lot, and may take their time. Not `patient`:
        StoreBusy if another thread's work is in the way."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Sql]:
        """A context for one statement that writes, or for several that need no common transaction."""

    @abstractmethod
    def _transaction(
        self,
        work: Callable[[Sql], T],
        *,
        patient: bool = True,
        ready: Callable[[T], Mapping[int, RankPosition]] = lambda _: {},
    ) -> T:
        """Run `work` in a transaction. `patient`: the caller is no engine, and may wait for somebody's lock. After the
        commit, engines elsewhere are told of the queues that have work, each with its first place."""

    @abstractmethod
    def _lease_time(self) -> Mapping[str, Any]:
        """The values that statements about leases need of the time; none, if they use the database's own clock."""

    @abstractmethod
    def _lock_note(self, sql: Sql, kind: str, name: str) -> str:
        """In a transaction: lock a note until its end, and read it."""

    @abstractmethod
    def _lock_keys(self, sql: Sql, keys: Sequence[tuple[int, str, str, str]], changes: Sequence[Change] = ()) -> None:
        """First in a transaction: lock keys, so that nobody else matches answers to jobs with these until its end. Then
        the rows of these changes are locked: keys, then jobs, then answers, an order that all share."""

    @abstractmethod
    def _inbox(self, sql: Sql) -> SqlInbox:
        """The inbox in a transaction that has locked the keys."""

    def _condition(self, wanted: Filter) -> str:
        """The condition of a page, or of a count, from either table."""
        return wanted.condition()

    @abstractmethod
    def _changed_if_any(self, name: str, queue: int = 0, **values: Any) -> int:
        """How many rows the statement of a file changed. It looks first whether there are any: mostly there are none,
        and then nobody waits for a lock."""

    @abstractmethod
    def _page(self, wanted: Filter, table: str) -> Mapping[str, str]:
        """How a page is found in the "live" or the "final" table: the parts of find.sql but for its columns."""

    @abstractmethod
    def _listing(self, wanted: Filter) -> AbstractContextManager[Sql]:
        """A context for reading a page, or a count."""
