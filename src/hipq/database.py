"""One database as an instance uses it: the store, and what stands on it, each made at its first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hipq.engine.accept import Coalescer
from hipq.errors import Invalid
from hipq.job import payload
from hipq.stores.clock import Clock, SystemClock
from hipq.stores.open import located, open_store, url_of
from hipq.stores.protocols import Store

if TYPE_CHECKING:
    from hipq.answers.results import Results
    from hipq.app import Hipq
    from hipq.callback.signing import Signer
    from hipq.running import AnyEngine, Wanted


_OF_ONE: Final = {"driver", "url", "database", "file", "host", "dbname"}
"""Words of a mapping that is one database, and no names of shards."""


class Database:
    def __init__(self, app: Hipq, db: str | Mapping[str, Any] | None, clock: Clock | None) -> None:
        self._url = url_of(db if db is not None else _default_url(app.name))
        self.clock = clock
        self.steady = (clock or SystemClock()).steady
        self._app = app
        self._located = ""
        """The URL once the database was opened: a relative path means the same file after a change of the folder."""
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._coalescer: Coalescer | None = None
        self._results: Results | None = None
        self._signer: Signer | None = None

    @property
    def url(self) -> str:
        return self._url

    @property
    def kind(self) -> str:
        return "sqlite" if self.url.startswith("sqlite") else "postgresql"

    def in_tests(self, app: Hipq, clock: Clock) -> Database:
        """The database that a test has in the place of this one."""
        return Database(app, "sqlite://", clock)

    @property
    def store(self) -> Store:
        """What to work with at this moment."""
        return self.own

    @property
    def own(self) -> Store:
        """The database on connections of our own, opened at its first use."""
        if self._store is None:
            with self._lock:
                if self._store is None:
                    self._store = self._open()
        return self._store

    def _open(self) -> Store:
        self._located = self._located or located(self.url)
        return open_store(self._located, self.clock)

    def migrate(self) -> list[str]:
        return self.store.migrate()

    def numbers(self, number: int) -> list[int]:
        """The numbers of the queue that has this one: one in each shard."""
        return [number]

    def store_of(self, job_id: int) -> Store:  # noqa: ARG002
        """The database that has a job."""
        return self.store

    def engine(self, wanted: Wanted) -> AnyEngine:
        """What works on its jobs."""
        if wanted.shards is not None:
            raise Invalid(f"{self._app.name} has one database, and no shards to choose from")
        from hipq.running import engine_on, executor_for  # a program that only adds jobs need not load any of this

        executor = executor_for(self._app, wanted, lambda: self.own)
        try:
            return engine_on(self._app, wanted, self.own, executor, lambda queue: queue.number)
        except BaseException:
            executor.close()
            raise

    @property
    def coalescer(self) -> Coalescer:
        if self._coalescer is None:
            self._coalescer = Coalescer(self.own, self._app.added)
        return self._coalescer

    @property
    def results(self) -> Results:
        if self._results is None:
            from hipq.answers.results import Results  # most programs wait for no result

            store = self.own
            with self._lock:
                self._results = self._results or Results(store, self._app.events)
        return self._results

    @results.setter
    def results(self, results: Results) -> None:
        self._results = results

    @property
    def signer(self) -> Signer:
        if self._signer is None:
            from hipq.callback.signing import Signer  # most programs are not called back

            self._signer = Signer(self.own, self._app.name)
        return self._signer

    def close(self) -> None:
        if self._results is not None:
            self._results.close()
        if self._store is not None:
            self._store.close()
            self._store = self._coalescer = self._results = self._signer = None


def database(app: Hipq, db: str | Mapping[str, Any] | Sequence[Any] | None, clock: Clock | None) -> Database:
    """The database of an instance, or its shards. JSON of these will do."""
    given = _default_url(app.name) if db is None else db
    if isinstance(given, str) and given.lstrip().startswith(("{", "[")):
        given = payload.parse(given, "db")
    if isinstance(given, str) or (isinstance(given, Mapping) and given.keys() & _OF_ONE):
        return Database(app, given, clock)
    if not isinstance(given, (Mapping, list, tuple)):
        raise Invalid(f"db must be a URL, a mapping, or several of them in a list, not {type(given).__name__}")
    from hipq.shards.database import ShardedDatabase  # most instances have one database

    return ShardedDatabase(app, given, clock)


MakeDatabase = Callable[["Hipq", Clock | None], Database]
"""A database that is more than a URL: `hipq.django.django_database` gives one."""


def _default_url(name: str) -> str:
    from hipq.config import database_url  # a program that names its database need not load it

    return database_url(name)
