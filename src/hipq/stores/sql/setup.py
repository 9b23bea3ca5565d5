"""The verbs about the schema and the registry of queues, and what makes sure that a database has our tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

from hipq.stores import migrations
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.jobs import JobVerbs
from hipq.stores.sql.pool import LONG_SECONDS, MIGRATION_SECONDS
from hipq.stores.sql.schema import Schema
from hipq.stores.values import QueueTables

T = TypeVar("T")
INCOMING: Final = "incoming:"
"""What a database is called into which jobs are being moved; the name of the move follows."""
ARRIVED: Final = "arrived:"
"""And what it is called afterwards."""


class SetupVerbs(JobVerbs):
    _schema: ClassVar[type[Schema]]
    _known: list[migrations.Migration]
    url: str

    @abstractmethod
    def _change_schema(
        self, work: Callable[[Schema], T], seconds: float = 0, *, what: str = "", migrates: bool = False
    ) -> T:
        """Do this while nobody else changes the schema. `seconds`: how long the database may take. `what`
        may lack tables, if not the database. `migrates`: that may lack all of them."""

    def schema(self, sql: Sql) -> Any:
        return self._schema(sql, self._known)

    def _check(self, schema: Schema) -> str:
        """Raise unless this program can work on the database. Returns what tells that from all others."""
        found = schema.version()
        migrations.check_version(found.number, found.accepts, self._known, self.url)
        return found.identity

    def migrate(self) -> list[str]:
        def work(schema: Schema) -> list[str]:
            applied = schema.migrate()  # nothing, if another process was first
            self._check(schema)
            return applied

        return self._change_schema(work, MIGRATION_SECONDS, migrates=True)

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        with self._reading() as sql:
            schema = self.schema(sql)
            found = schema.complete(app, name, table)
            self._check(schema)  # after that look: what was found may have been moved here just now

        def work(schema: Schema) -> QueueTables:
            self._check(schema)
            return schema.complete_now(app, name, table)

        found = found or self._change_schema(work, what=f": queue {app}.{name}")
        self._statements.learn([found])
        return found

    def queues(self, app: str = "") -> list[QueueTables]:
        with self._reading() as sql:
            found = self.schema(sql).registered()
        self._statements.learn(found)
        return [queue for queue in found if not app or queue.app == app]

    def drop_queue(self, number: int) -> None:
        self._change_schema(lambda schema: schema.drop(number, lambda: self._engines(schema.sql)), LONG_SECONDS)
        self._statements.forget(number)

    def restored(self, margin: int) -> None:
        self._change_schema(
            lambda schema: schema.restored(margin, lambda: self._engines(schema.sql)), MIGRATION_SECONDS
        )

    def number_above(self, queue: int, answer: int) -> None:
        self._change_schema(lambda schema: schema.number_above(queue, answer), MIGRATION_SECONDS)
