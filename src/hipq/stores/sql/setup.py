"""The verbs about the schema and the registry of queues, and what makes sure that a database has our tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Final, TypeVar

from hipq.errors import Invalid, SchemaError, StoreUnavailable
from hipq.stores import migrations
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.jobs import JobVerbs
from hipq.stores.sql.pool import CALLER_SECONDS, LONG_SECONDS, MIGRATION_SECONDS
from hipq.stores.sql.schema import Schema, ServerSchema
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


class ServerSetup(SetupVerbs):
    _schema: ClassVar[type[ServerSchema]]
    _db: Any
    _identity = ""
    """Which database this is, once it is known to have our tables."""

    @abstractmethod
    def _sql(self, conn: Any) -> Sql: ...

    def _check(self, schema: Schema) -> str:
        identity = super()._check(schema)
        if identity.startswith(INCOMING):
            raise StoreUnavailable(
                f"{self.url} has a copy of jobs that are still elsewhere: run `hipq move` to its end"
            )
        self._identity = identity
        return identity

    def _change_schema(
        self, work: Callable[[Any], T], seconds: float = 0, *, what: str = "", migrates: bool = False
    ) -> T:
        with (self._db.using if migrates else self._using)(seconds) as conn:
            schema = self.schema(self._sql(conn))

            def allowed() -> T:
                with self._may_change(schema, what):
                    return work(schema)

            return schema.alone(allowed, 0 if migrates else CALLER_SECONDS)  # type: ignore[no-any-return]

    @contextmanager
    def _may_change(self, schema: ServerSchema, what: str) -> Iterator[None]:
        try:
            yield
        except schema.errors as error:
            if reason := schema.forbidden(error):
                raise SchemaError(
                    f"{self.url}{what} lacks tables, and this user may not make them ({reason}): run `hipq migrate "
                    "MODULE:APP` as a user who may"
                ) from None
            raise

    def arrived(self, move: str) -> None:
        """Jobs have moved here, and the signpost says so: from now on they may be used."""
        with self._db.using() as conn:
            schema = self.schema(self._sql(conn))
            schema.rename(ARRIVED + move, INCOMING + move)
            if schema.version().identity != ARRIVED + move:
                raise StoreUnavailable(
                    f"{self.url} is not the database that jobs were moved to, or is as it was before: restored from an "
                    "older backup, perhaps"
                )

    def _using(self, answer_seconds: float = 0) -> AbstractContextManager[Any]:
        """A connection to a database that is known to have our tables."""
        if not self._identity:
            with self._db.using() as conn:
                self._check(self.schema(self._sql(conn)))
        return self._db.using(answer_seconds)  # type: ignore[no-any-return]

    def _check_same(self, identity: str, name: list[Any]) -> None:
        """Refuse a user's connection to another database: a job stored there would never be run."""
        with self._using():  # which knows whose database this should be
            pass
        if identity != self._identity:
            raise Invalid(f"conn is open on the database {name[0][0]!r}, not on {self.url}")
