"""What the verbs that all SQL stores share need of one database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from hipq.job.model import New
from hipq.stores.values import Stored

T = TypeVar("T")


class SqlConnection(Protocol):
    def execute(self, query: Any, values: Any = ..., /) -> Any: ...


class Statements(Protocol):
    def of(self, name: str, queue: int) -> Any:
        """The SQL of a file, for one queue."""

    def plain(self, name: str) -> Any:
        """The SQL of a file that is about no queue."""


class Inserting(Protocol):
    def many(self, conn: Any, jobs: Sequence[New], all_or_nothing: bool) -> list[Stored]:
        """Add jobs, each under a new id."""

    def given(self, conn: Any, jobs: Sequence[tuple[int, New]]) -> None:
        """Add jobs under ids that they have already."""


class Dialect(ABC):
    """A store in SQL: where its statements are, and how it runs them."""

    _statements: Statements
    _insert: Inserting

    @abstractmethod
    def _found(self, name: str, queue: int = 0, *, long: bool = False, **values: Any) -> list[Any]:
        """The rows that the SQL of a file finds. `long`: the statement reads a lot, and may take its time."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[SqlConnection]:
        """A connection for statements that write and need no transaction around them."""

    @abstractmethod
    def _transaction(self, work: Callable[[Any], T]) -> T:
        """Do it in a transaction of a program that is no engine, and may wait for somebody's lock."""

    @abstractmethod
    def _adding(
        self, work: Callable[[Any], list[Stored] | None], jobs: Sequence[New], *, patient: bool = False
    ) -> list[Stored] | None:
        """Do it in a transaction and tell engines of the jobs that it has added, in the order of `jobs`; None = it has
        added none of them. `patient`: the caller is no engine, and may wait for somebody's lock."""

    @abstractmethod
    def _lock_note(self, conn: Any, kind: str, name: str) -> str:
        """In a transaction: a note that nobody else changes before its end."""
