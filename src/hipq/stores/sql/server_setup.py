"""The verbs about the registry of queues that all servers share, and what makes sure that a database has our tables."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final, Protocol

from hipq.errors import StoreUnavailable
from hipq.stores import migrations
from hipq.stores.sql.jobs import JobVerbs
from hipq.stores.values import QueueTables

INCOMING: Final = "incoming:"
"""What a database is called into which jobs are being moved; the name of the move follows."""
ARRIVED: Final = "arrived:"
"""And what it is called afterwards."""


class Schema(Protocol):
    """A module that reads and changes a server's schema."""

    def version(self, conn: Any) -> tuple[int, int, str]: ...
    def registered(self, conn: Any) -> list[QueueTables]: ...
    def complete(
        self, conn: Any, known: list[migrations.Migration], app: str, name: str, table: str
    ) -> QueueTables | None: ...
    def rename(self, conn: Any, name: str, instead_of: str) -> None: ...


class Pool(Protocol):
    def using(self, answer_seconds: float = 0) -> AbstractContextManager[Any]: ...


class ServerSetup(JobVerbs):
    _schema: ClassVar[Schema]
    url: str
    _db: Pool
    _known: list[migrations.Migration]
    _identity = ""
    """Which database this is, once it is known to have our tables."""

    @abstractmethod
    def _made(self, conn: Any, app: str, name: str, table: str) -> QueueTables:
        """A queue that was not there, or lacked something: with all its tables."""

    def _check(self, conn: Any) -> None:
        found, accepts, identity = self._schema.version(conn)
        migrations.check_version(found, accepts, self._known, self.url)
        if identity.startswith(INCOMING):
            raise StoreUnavailable(
                f"{self.url} has a copy of jobs that are still elsewhere: run `hipq move` to its end"
            )
        self._identity = identity

    def arrived(self, move: str) -> None:
        """Jobs have moved here, and the signpost says so: from now on they may be used."""
        with self._db.using() as conn:
            self._schema.rename(conn, ARRIVED + move, INCOMING + move)
            if self._schema.version(conn)[2] != ARRIVED + move:
                raise StoreUnavailable(
                    f"{self.url} is not the database that jobs were moved to, or is as it was before: restored from an "
                    "older backup, perhaps"
                )

    def _using(self, answer_seconds: float = 0) -> AbstractContextManager[Any]:
        """A connection to a database that is known to have our tables."""
        if not self._identity:
            with self._db.using() as conn:
                self._check(conn)
        return self._db.using(answer_seconds)

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        with self._using() as conn:
            found = self._schema.complete(conn, self._known, app, name, table)
            self._check(conn)  # after that look: what was found may have been moved here just now
            found = found or self._made(conn, app, name, table)
        self._statements.learn([found])
        return found

    def queues(self, app: str = "") -> list[QueueTables]:
        with self._using() as conn:
            found = self._schema.registered(conn)
        self._statements.learn(found)
        return [queue for queue in found if not app or queue.app == app]
