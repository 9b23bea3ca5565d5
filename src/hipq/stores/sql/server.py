"""What the stores on servers share: the database's clock, counters of connections, and what makes sure that a database
is the right one and has our tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Final, TypeVar

from hipq.errors import SchemaError, StoreUnavailable, WrongConnection
from hipq.job.activity import MINUTE, beginning
from hipq.job.model import New
from hipq.job.when import SECOND
from hipq.stores.clock import Clock
from hipq.stores.refusals import Given, refusals
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.moment import DatabaseClock
from hipq.stores.sql.pool import CALLER_SECONDS
from hipq.stores.sql.schema import Schema, ServerSchema
from hipq.stores.sql.setup import ARRIVED, INCOMING
from hipq.stores.sql.store import SqlStore

T = TypeVar("T")
LATEST_ID: Final = (1 << 63) - 1
"""In place of an id that is not known yet: higher than nearly all that come before it."""
GATHERED: Final = 15 * MINUTE
"""How many seconds back one looks for what connections have counted in minutes that are over; what is older waits until
its hour is folded."""


class ServerStore(SqlStore):
    _schema: ClassVar[type[ServerSchema]]
    _db: Any
    _identity = ""
    """Which database this is, once it is known to have our tables."""

    _now: ClassVar[str]
    """A query for the database's time in microseconds."""
    _clock: Clock | None
    _database_clock: DatabaseClock
    _waker: Any

    @property
    def waker(self) -> Any:
        self._db.check_fork()
        return self._waker

    def now(self) -> int:
        if self._clock:
            return self._clock.now()
        self._db.check_fork()
        return self._database_clock.now()

    def _asked_time(self) -> int:
        with self._db.using() as conn:
            ((now,),) = self._sql(conn).rows_of(self._now)
        return int(now)

    def _clock_said(self, now: int) -> None:
        self._database_clock.heard(now)

    def close(self) -> None:
        self._db.check_fork()
        self._db.close()
        self._waker.close()

    def _lease_time(self) -> Mapping[str, Any]:
        return {}

    # -- transactions -----------------------------------------------------------------------------------------------
    @abstractmethod
    def _patiently(self, conn: Any, work: Callable[[], T]) -> T:
        """Run `work` in a transaction for a program that is no engine: it may wait for somebody's lock."""

    def refusals(self, jobs: Sequence[tuple[int, New]]) -> dict[int, str]:
        with self._using() as conn:

            def put(some: Given) -> None:
                with conn.transaction():
                    self._insert.given(conn, some)

            def work() -> dict[int, str]:
                with conn.transaction(force_rollback=True):
                    return refusals(jobs, put, self._db.translated)

            return self._patiently(conn, work)

    # -- counters ---------------------------------------------------------------------------------------------------
    def _fold_activity(self, queues: Sequence[int], now: int) -> bool:
        """Also what connections have counted in minutes that are over, so that there is little to read."""
        over = beginning(now - MINUTE * SECOND, MINUTE)
        values = {"grain": MINUTE, "since": over - GATHERED * SECOND, "until": over, "queues": list(queues)}
        self._transaction(lambda sql: self._folded_into(sql, MINUTE, "writer <> 0", values), patient=False)
        return super()._fold_activity(queues, now)

    def _fold(self, sql: Sql, into: int, values: dict[str, Any]) -> int:
        if not into:
            return sql.changed("activity_delete", **values)
        return self._folded_into(sql, into, "true", {**values, "queues": [values["queue"]]})

    @abstractmethod
    def _folded_into(self, sql: Sql, into: int, which: str, values: dict[str, Any]) -> int:
        """Add counters up to those of longer periods. One engine at a time: two that write the same rows could wait for
        each other."""

    # -- the database, and the registry of queues -------------------------------------------------------------------
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
            raise WrongConnection(f"conn is open on the database {name[0][0]!r}, not on {self.url}")
