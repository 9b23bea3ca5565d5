"""`Hipq`: one instance, put together from its parts. This is composition; the work is in `hipq.engine`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from hipq.answering import Answering
from hipq.changing import Changing
from hipq.engine.accept import UNTRACED, Adding, Coalescer, LaneBy
from hipq.engine.pulse import LEASE, POLL
from hipq.errors import Invalid, shown
from hipq.events import Events
from hipq.job import names
from hipq.job.answer import DEFAULT_KEEPING, Keeping
from hipq.job.event_names import JobEvent
from hipq.job.model import New, blank
from hipq.job.names import TableNaming, default_table_naming, whole
from hipq.job.order import Aged, order
from hipq.job.retries import RESERVED, RetryHandler
from hipq.job.spec import takes
from hipq.job.when import seconds
from hipq.job_type import JobType, retry_handler
from hipq.limits.rules import AnyLimit, Rules, checked
from hipq.queue import Queue
from hipq.signals import each_meant
from hipq.stores.clock import Clock, SystemClock
from hipq.stores.open import located, open_store, url_of, without_password
from hipq.stores.protocols import Store
from hipq.stores.values import Stored

if TYPE_CHECKING:
    from hipq.answers.listening import Listener
    from hipq.answers.results import Results
    from hipq.callback.signing import Signer
    from hipq.engine.loop import Engine
    from hipq.limits.code import Throttler
    from hipq.observe.traces import Traces


class Hipq(Changing, Answering):
    """An instance: a name, a database, queues. `db` is a URL, `{"driver": "sqlite", "database": "shop.db"}`,
    `{"driver": "postgresql", "database": "shop", "host": "db", ...}` with any key of libpq, or JSON of such a mapping.
    Without it the database is $HIPQ_DATABASE_URL, else `database` of hipq.toml, else a SQLite file named after the
    instance, in the current folder."""

    def __init__(
        self,
        name: str,
        db: str | Mapping[str, Any] | None = None,
        *,
        table_naming: TableNaming | None = None,
        clock: Clock | None = None,
        callback_url: str | None = None,
    ) -> None:
        self.name = names.name(name, "the instance's name")
        if table_naming is None:
            names.instance(name)
        self.url = url_of(db if db is not None else _default_url(name))
        self._located = ""
        """The database once it was opened: a relative path means the same file after a change of the folder."""
        self.events = Events()
        self._naming = table_naming or default_table_naming
        self._clock = clock
        self.steady = (clock or SystemClock()).steady
        self._queues: dict[str, Queue] = {}
        self._tables: dict[str, str] = {}
        """The tables of those that were declared."""
        self.strategies: dict[str, RetryHandler] = {}
        """Registered by `retry_strategy`."""
        self._callback_url = callback_url
        self._signer: Signer | None = None
        self._listeners: dict[tuple[str, str], Callable[[], Listener]] = {}
        self._store: Store | None = None
        self._coalescer: Coalescer | None = None
        self._waiting_for: Results | None = None
        self._lock = threading.Lock()
        self.traces: Traces | None = None
        """What traces its jobs: see `hipq.observe.traces`."""
        wanted = os.environ.get("HIPQ_TRACES", "")
        if wanted not in ("", "0", "1"):
            raise Invalid(f"HIPQ_TRACES is 1 or 0, not {shown(wanted)}")
        if wanted == "1":
            from hipq.observe.traces import trace  # it needs OpenTelemetry

            trace(self)

    @property
    def store(self) -> Store:
        """The database, opened at its first use."""
        if self._store is None:
            with self._lock:
                if self._store is None:
                    self._store = self._opened()
        return self._store

    def _opened(self) -> Store:
        self._located = self._located or located(self.url)
        return open_store(self._located, self._clock)

    @property
    def coalescer(self) -> Coalescer:
        if self._coalescer is None:
            self._coalescer = Coalescer(self.store, self.added)
        return self._coalescer

    def queue(
        self,
        name: str,
        *,
        throttle_limit: float = 0,
        limits: Sequence[AnyLimit] = (),
        throttler: Throttler | None = None,
        order: str | Aged = "time",
        grain: float = 1.0,
        lane_by: LaneBy | None = None,
        lanes: str = "ordered",
        answer_ttl: float | timedelta = DEFAULT_KEEPING.answer_ttl,
        early_window: float | timedelta = DEFAULT_KEEPING.early_window,
        answer_memory: float | timedelta = DEFAULT_KEEPING.answer_memory,
    ) -> Queue:
        """Declare a queue. `order`: "time" (then priority), "priority" (then time), or `aged(seconds)`.

        `throttle_limit` (below 1 = none) and `limits` say how much of it may run at a time, or start in a time; a
        `throttler` is code that decides. `lane_by` gives each new job its lane; with `lanes="fair"` lanes take turns.

        Answers that nobody has used are kept for `answer_ttl`; the ids of used ones are known for `answer_memory`. An
        answer may come `early_window` before its job is added; and one that comes so long after a job's end is late.
        """
        if name in self._queues:
            raise Invalid(f"queue {name} is declared already")
        if throttler is not None:
            takes(throttler, "throttler", "due, running, now")
        if lane_by is not None:
            takes(lane_by, "lane_by", "job")
        names.one_of(lanes, "choice for lanes", ("ordered", "fair"))
        keeping = Keeping(
            seconds(answer_ttl, "answer_ttl", least=1),
            seconds(early_window, "early_window"),
            seconds(answer_memory, "answer_memory"),
        )
        table = self._free_table(name)
        declared = Rules(checked(limits, throttle_limit), lanes=lanes, throttled=throttler is not None, keeping=keeping)
        self._queues[name] = Queue(self, name, _order(order, grain), declared, throttler, lane_by)
        self._tables[name] = table
        return self._queues[name]

    def retry_strategy(self, name: str) -> Callable[[RetryHandler], RetryHandler]:
        """Decorator: this function decides what becomes of failed jobs that were added with `retry=name`. It gets a
        copy of the job, and the fault, as a retry handler does. A job stores the name: a worker in which no function is
        registered under it leaves the job, once that has failed, to a worker in which one is."""
        if names.strategy(name) in RESERVED:
            raise Invalid(f"{name} is the name of a ready-made retry strategy: choose another")

        def register(handler: RetryHandler) -> RetryHandler:
            retry_handler(handler, "a retry strategy")
            if name in self.strategies:
                raise Invalid(f"a retry strategy is registered under the name {name} already")
            self.strategies[name] = handler
            return handler

        return register

    def known(self, name: str) -> Queue:
        """A queue that the database has and no code here declares: to look at, and to change."""
        self._queues[name] = Queue(self, name, None)
        return self._queues[name]

    def _table(self, queue: str) -> str:
        return names.table(self._naming(self.name, queue))

    def _free_table(self, queue: str) -> str:
        """The queue's table; NameClash, if another queue of this instance stands in its way."""
        from hipq.stores.migrations import check_apart  # with a second queue, and then the store needs it, too

        table = self._table(queue)
        for other, their_table in self._tables.items():
            check_apart(queue, table, other, their_table)
        return table

    def register(self, queue: str) -> int:
        return self.store.queue(self.name, queue, self._table(queue)).number

    # -- running ----------------------------------------------------------------------------------------------------
    def run(
        self,
        queues: Sequence[str] | None = None,
        concurrency: int = 10,
        until_empty: bool = False,
        poll: float = POLL,
        lease: float = LEASE,
        drain: float | timedelta | None = None,
    ) -> None:
        """Work until asked to stop by SIGINT or SIGTERM (in the main thread). With `until_empty`, until nothing is due
        and nothing executes (jobs that wait for an answer or for their time do not count); then it listens to nothing.

        `lease`: seconds this process may be silent (dead, or stopped) before its jobs are given to others. `drain`:
        seconds a stop may take; then handlers that still run are given back. Without it they are waited for; a database
        that is away then, for 30 seconds.

        A database that is away when this begins raises StoreUnavailable at once, as every other call does: a program
        hears of a wrong URL, and tries again as it likes. One that goes away later is waited for. `hipq worker`, which
        nobody looks at when it starts, waits in both cases.
        """
        engine = self.engine(queues, concurrency, poll, lease, drain)
        try:
            with _stopped_by_signals(engine.stop), self.listening([] if until_empty else queues):
                engine.run(until_empty)
        finally:
            if not engine.torn:
                engine.executor.close()
        if engine.unfit:
            raise RuntimeError(f"{engine.unfit}: this process must be replaced")

    @contextmanager
    def working(
        self,
        queues: Sequence[str] | None = None,
        concurrency: int = 10,
        poll: float = POLL,
        lease: float = LEASE,
    ) -> Iterator[None]:
        """Work in a thread until the end of the block, beside whatever else this program does. Handlers that are
        running then may finish. It forks, so begin it before threads of your own. If the engine fails meanwhile, the
        error is logged at once, and the block ends with that error. A database that is away when this begins raises
        StoreUnavailable, as with `run`."""
        engine = self.engine(queues, concurrency, poll, lease)
        failed: list[BaseException] = []

        def run() -> None:
            try:
                engine.run()
            except BaseException as error:
                import logging  # nobody else here needs it

                failed.append(error)
                logging.getLogger("hipq").exception("the engine of %s failed: no job runs any more", self.name)

        thread = threading.Thread(target=run, name="hipq-engine", daemon=True)
        thread.start()
        try:
            with self.listening(queues):
                yield
        finally:
            engine.stop()
            thread.join()
            if not engine.torn:
                engine.executor.close()
            if failed:
                raise failed[0]

    def engine(
        self,
        queues: Sequence[str] | None = None,
        concurrency: int = 10,
        poll: float = POLL,
        lease: float = LEASE,
        drain: float | timedelta | None = None,
    ) -> Engine:
        """An engine over some queues, or all of them; `run` drives it."""
        from hipq.engine.executor import LocalExecutor  # a program that only adds jobs need not load any of this
        from hipq.engine.launch import Launcher, bare
        from hipq.engine.loop import Engine
        from hipq.engine.setup import Setup
        from hipq.executors.processes import ForkServer

        unknown = set(queues or ()) - set(self._queues)
        if unknown:
            raise Invalid(f"no such queue: {', '.join(sorted(unknown))}; there are {', '.join(self._queues) or 'none'}")
        whole(concurrency, "concurrency", 1, 10_000)
        poll, lease = seconds(poll, "poll"), seconds(lease, "lease", least=0.1)
        if not 0.01 <= poll <= 60:
            raise Invalid("poll must be between 0.01 and 60 seconds")
        chosen = [queue for queue in self.queues if queues is None or queue.name in queues]
        if not chosen:
            raise Invalid("there is no queue to work on: declare one with app.queue(...)")
        launcher = Launcher(
            lambda: self.store.now(),
            self.steady,
            lambda queue: self._queues[queue].chained,
            self.traces.around if self.traces else bare,
        )
        fork_server = ForkServer(
            lambda job, is_told: launcher.serve(
                job, is_told, lambda queue, job_type: self._queues[queue].spec(job_type)
            )
        )
        try:
            served = [queue.for_engine() for queue in chosen]  # opens the store, whose threads must not be forked
            notify_done = partial(self.store.notify, done=True)
            hands = LocalExecutor(fork_server, launcher, concurrency, notify_done, self.store.clear)
        except BaseException:
            fork_server.close()
            raise
        setup = Setup(
            self.store,
            served,
            hands,
            self.events,
            self.steady,
            concurrency=concurrency,
            poll=poll,
            lease=lease,
            drain=None if drain is None else seconds(drain, "drain"),
            added=self.added,
            bring=lambda kept: self.inbox.deliver_inserted(kept),
        )
        return Engine(setup)

    # -- its database -------------------------------------------------------------------------------------------------
    def migrate(self) -> list[str]:
        """Bring the database's schema to this version and make the tables of the declared queues; what was applied."""
        applied = self.store.migrate()
        for queue in self.queues:
            _ = queue.number
        return applied

    def close(self) -> None:
        if self._waiting_for is not None:
            self._waiting_for.close()
        if self._store is not None:
            self._store.close()
            self._store = self._coalescer = self._waiting_for = self._signer = None

    @contextmanager
    def elsewhere(self, db: str | Mapping[str, Any], clock: Clock) -> Iterator[None]:
        """Until the block ends: on another database, by another clock; what tests do (`hipq.testing`). What it had open
        stays open, and is what it goes on with afterwards."""
        url = url_of(db)
        with self._lock:
            if self._away:
                raise Invalid(f"{self.name} is in use by a test already: let that end before another begins")
            before = (self.url, self._clock, self.steady, self._store, self._coalescer, self._waiting_for, self._signer)
            where, self._located = self._located, ""
            back = {queue.name: queue.leave() for queue in self.queues}
            self.url, self._clock, self.steady = url, clock, clock.steady
            self._store = self._coalescer = self._waiting_for = self._signer = None
            self._away = True
        try:
            yield
        finally:
            try:
                self.close()
            finally:
                for queue in self.queues:
                    back.get(queue.name, queue.leave)()
                self.url, self._clock, self.steady, self._store, self._coalescer, self._waiting_for = before[:-1]
                self._signer, self._located = before[-1], where
                self._away = False

    # -- for the parts ----------------------------------------------------------------------------------------------
    def adding(self, job_type: JobType, key: str | None = None) -> Adding:
        """To be entered while jobs are added."""
        return UNTRACED if self.traces is None else self.traces.adding(job_type.queue.name, job_type.name, key)

    def added(self, news: Sequence[New], stored: Sequence[Stored]) -> None:
        if self.events.wanted(JobEvent.ADDED):
            for new, one in zip(news, stored, strict=True):
                if not one.duplicate:
                    self.events.emit(JobEvent.ADDED, new.create_time, self._by_number(one.id).name, blank(new, one.id))

    def __repr__(self) -> str:
        return f"<Hipq {self.name} on {without_password(self.url)}>"


_order = order


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM stop the engine while it runs in the main thread: once gently, twice at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = each_meant(stop)
    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _default_url(name: str) -> str:
    from hipq.config import database_url  # a program that names its database need not load it

    return database_url(name)
