"""Several databases as an instance uses them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hipq.database import Database
from hipq.errors import Invalid, shown
from hipq.job.model import New
from hipq.job.units import UNIT, counted
from hipq.limits.per_lane import PerLane
from hipq.limits.rate import Rate
from hipq.shards.members import joined
from hipq.shards.place import SLOTS
from hipq.shards.router import ShardRouter
from hipq.shards.shard import Shard
from hipq.shards.view import ShardView
from hipq.stores.clock import Clock
from hipq.stores.open import located, open_store, url_of
from hipq.stores.protocols import Store

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.engine.executor import LocalExecutor
    from hipq.engine.loop import Engine
    from hipq.queue import Queue
    from hipq.running import Wanted
    from hipq.shards.engines import ShardEngines


_NAME: Final = re.compile(r"[A-Za-z][\w-]{0,39}", re.ASCII)


def urls(db: Sequence[Any] | Mapping[str, Any]) -> dict[str, str]:
    """The URLs of shards by their names, which in a list are s1, s2 and so on."""
    given = db if isinstance(db, Mapping) else {f"s{n}": one for n, one in enumerate(db, 1)}
    if not 1 <= len(given) < SLOTS:
        raise Invalid(f"an instance has 1 to {SLOTS - 1} shards, not {len(given)}")
    for name in given:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Invalid(f"a shard's name is a letter and up to 39 letters, digits and - or _, not {shown(name)}")
    found = {name: url_of(one) for name, one in given.items()}
    if len(set(found.values())) < len(found):
        raise Invalid("two shards have the same database: each needs one of its own")
    return found


class ShardedDatabase(Database):
    def __init__(self, app: Hipq, db: Sequence[Any] | Mapping[str, Any], clock: Clock | None) -> None:
        self.urls = urls(db)
        super().__init__(app, next(iter(self.urls.values())), clock)
        self._views: dict[str, Store] = {}

    @property
    def url(self) -> str:
        """JSON of all of them, by name: what `db` takes, too."""
        return json.dumps(self.urls, ensure_ascii=False)

    @property
    def kind(self) -> str:
        return "sqlite" if self._url.startswith("sqlite") else "postgresql"

    def _open(self) -> Store:
        self.urls = {name: located(url) for name, url in self.urls.items()}
        shards = [Shard(name, url, lambda url: open_store(url, self.clock)) for name, url in self.urls.items()]
        joined(self._app.name, shards)
        shards.sort(key=lambda shard: shard.slot)  # schedules are in the first one, whatever order a program gives
        return ShardRouter(shards, self._shard_key).as_store()

    def migrate(self) -> list[str]:
        """Each database by itself, before anybody asks which shard it is."""
        applied = []
        for name, url in self.urls.items():
            with closing(open_store(located(url), self.clock)) as store:
                applied += [f"{name}: {migration}" for migration in store.migrate()]
        return applied

    def _shard_key(self, new: New) -> str:
        return self._app.declared.numbered(new.queue).shard_key_of(new)

    @property
    def router(self) -> ShardRouter:
        router: Any = self.own
        return router  # type: ignore[no-any-return]

    def numbers(self, number: int) -> list[int]:
        return self.router.numbers(number)

    def engine(self, wanted: Wanted) -> ShardEngines:
        from hipq.running import executor_for
        from hipq.shards.engines import ShardEngines

        if wanted.shards is not None and not wanted.shards:
            raise Invalid("name at least one shard to work on, or leave shards= out")
        if unknown := sorted(set(wanted.shards or ()) - self.urls.keys()):
            raise Invalid(f"no such shard: {', '.join(unknown)}; there are {', '.join(self.urls)}")
        for queue in wanted.queues:
            _check_parts(queue, len(self.urls))
        engines, hands = ShardEngines(self._app.events), threading.BoundedSemaphore(wanted.concurrency)
        for name in wanted.shards or self.urls:  # each of these forks: no store is open yet
            executor = executor_for(self._app, wanted, partial(self._view, name), self._wake, hands)
            engines.add(name, executor, partial(self._engine_on, name, wanted, executor, engines))
        try:
            engines.begin(self.router, [queue.number for queue in wanted.queues])
        except BaseException:
            engines.close()
            raise
        return engines

    def close(self) -> None:
        super().close()
        self._views.clear()

    def store_of(self, job_id: int) -> Store:
        return self.router.of_job(job_id).store

    def _engine_on(self, name: str, wanted: Wanted, executor: LocalExecutor, engines: ShardEngines) -> Engine:
        from hipq.running import engine_on

        shard, router = self.shard(name), self.router
        return engine_on(
            self._app, wanted, self._view(name), executor, lambda queue: router.own(queue.number, shard),
            partial(engines.taken_beside, name), ticks=shard is router.shards[0],
        )  # fmt: skip

    def _wake(self) -> None:
        """A hand is free, which an engine of any shard may take."""
        self.router.waker.notify(done=True)

    def _view(self, name: str) -> Store:
        if name not in self._views:
            self._views[name] = ShardView(self.shard(name), self.router).as_store()
        return self._views[name]

    def shard(self, name: str) -> Shard:
        return next(shard for shard in self.router.shards if shard.name == name)


def _check_parts(queue: Queue, shards: int) -> None:
    """Raise if a limit that is divided evenly leaves a shard less than a unit: nothing would ever start there."""
    for one in queue.declared.limits:
        if isinstance(one, (PerLane, Rate)) and counted(one.n) < shards * UNIT:
            raise Invalid(
                f"{one} of the queue {queue.name}, divided by {shards} shards, is less than one unit for each"
            )
