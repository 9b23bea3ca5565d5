"""`Hipq`: one instance, put together from its parts. This is composition; the work is in `hipq.engine`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from hipq.database import MakeDatabase, database
from hipq.declared import DeclaredQueues
from hipq.engine.accept import LaneBy
from hipq.engine.timetable import LEASE, POLL
from hipq.errors import Invalid
from hipq.events import Events
from hipq.in_thread import awaitable, in_thread
from hipq.job import names
from hipq.job.answer import DEFAULT_KEEPING, Answered, Keeping
from hipq.job.event_names import JobEvent
from hipq.job.middleware import Middleware, Middlewares
from hipq.job.model import New, blank
from hipq.job.names import TableNaming, default_table_naming
from hipq.job.order import Aged
from hipq.job.order import order as _order
from hipq.job.retries import RetryHandler
from hipq.job.spec import registering, takes
from hipq.job.view import Job
from hipq.job.when import seconds
from hipq.job.why import Why
from hipq.job_type import JobType
from hipq.jobs import Jobs
from hipq.limits.rules import AnyLimit, Rules, checked
from hipq.queue import Queue
from hipq.rules import QueueRules
from hipq.stores.clock import Clock
from hipq.stores.open import without_password
from hipq.stores.protocols import Store
from hipq.stores.values import Stored
from hipq.streams import Reading, Streams

if TYPE_CHECKING:
    from hipq.answers.inbox import Inbox
    from hipq.callback.signing import Signer
    from hipq.cron import CronSchedules
    from hipq.engine.loop import Engine
    from hipq.limits.code import DryRun, Throttler
    from hipq.observe.traces import Traces
    from hipq.running import AnyEngine


class Hipq:
    """An instance: a `name` that is unique in its database, and queues.

    `db` is a URL, `{"driver": "sqlite", "database": "shop.db"}`,
    `{"driver": "postgresql", "database": "shop", "host": "db", ...}` with any key of libpq, or JSON of such a mapping;
    or one of Django's, `hipq.django.django_database()`. Several of them are shards: a list, or a mapping of names to
    databases. Without it the database is $HIPQ_DATABASE_URL, else `database`
    of hipq.toml, else a SQLite file named after the instance, in the current folder.

    `table_naming`: a function of the names of the instance and a queue that returns the name of the queue's table.
    `clock`: for tests. `callback_url`: what callback URLs begin with, where `hipq.callbacks` is reached from outside.

    The everyday verbs are methods; the others are sorted by subject: `jobs`, `rules`, `cron`, `answers`, `streams`."""

    def __init__(
        self,
        name: str,
        db: str | Mapping[str, Any] | Sequence[Any] | MakeDatabase | None = None,
        *,
        table_naming: TableNaming | None = None,
        clock: Clock | None = None,
        callback_url: str | None = None,
    ) -> None:
        self.name = names.name(name, "the instance's name")
        if table_naming is None:
            names.instance(name)
        self.events = Events()
        self.jobs = Jobs(self)
        self.ajobs = self.jobs.alist
        """`jobs(...)` for async code, as `acount` is `jobs.count(...)`."""
        self.acount = self.jobs.acount
        self.rules = QueueRules(self)
        self.streams = Streams(self)
        self.strategies: dict[str, RetryHandler] = {}
        """The retry strategies that `retry_strategy` registered."""
        self.middlewares = Middlewares()
        self.traces: Traces | None = None
        """What traces the jobs of this instance: see `hipq.observe.traces`."""
        naming = table_naming or default_table_naming
        self.declared = DeclaredQueues(lambda queue: naming(self.name, queue))
        self._callback_url = callback_url
        self.database = db(self, clock) if callable(db) else database(self, db, clock)
        self.is_elsewhere = False
        """Whether the instance is on another database for a while, as in a test."""
        if wanted := os.environ.get("HIPQ_TRACES", ""):
            from hipq.observe.wanted import trace_if

            trace_if(wanted, self)

    # -- declaring ----------------------------------------------------------------------------------------------------
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
        shard_key: LaneBy | None = None,
        lanes: str = "ordered",
        answer_ttl: float | timedelta = DEFAULT_KEEPING.answer_ttl,
        early_window: float | timedelta = DEFAULT_KEEPING.early_window,
        answer_memory: float | timedelta = DEFAULT_KEEPING.answer_memory,
    ) -> Queue:
        """Declare a queue, called `name`. `order`: "time" (then priority), "priority" (then time), or `aged(seconds)`.
        `grain`: seconds to which start times are rounded down before the order by time compares them; within the same
        grain, priority decides.

        `throttle_limit` (below 1 = none) and `limits` say how much of it may run at a time, or start in a time; a
        `throttler` is code that decides. `lane_by` gives each new job its lane; with `lanes="fair"` lanes take turns.
        Where the instance has shards, `shard_key` says by which text each new job is given to one, instead of its key.

        Answers that nobody has used are kept for `answer_ttl`; the ids of used ones are known for `answer_memory`. An
        answer may come `early_window` before its job is added; and one that comes so long after a job's end is late.
        """
        if throttler is not None:
            takes(throttler, "throttler", "due, running, now")
        if lane_by is not None:
            takes(lane_by, "lane_by", "job")
        if shard_key is not None:
            takes(shard_key, "shard_key", "job")
        names.one_of(lanes, "choice for lanes", ("ordered", "fair"))
        keeping = Keeping.of(answer_ttl, early_window, answer_memory)
        declared = Rules(checked(limits, throttle_limit), lanes=lanes, throttled=throttler is not None, keeping=keeping)
        made = Queue(self, name, _order(order, grain), declared, throttler, lane_by, shard_key)
        return self.declared.declare(made)

    def retry_strategy(self, name: str) -> Callable[[RetryHandler], RetryHandler]:
        """Decorator: this function decides what becomes of failed jobs that were added with `retry=name`. It gets a
        copy of the job, and the fault, as a retry handler does. A job stores the name: a worker in which no function is
        registered under it leaves the job, once that has failed, to a worker in which one is."""
        return registering(self.strategies, name)

    def use(self, middleware: Middleware) -> None:
        """Let this run around all jobs of the app, before the app works: around their adding, their handlers, answer
        handlers and retry handlers. The first one used is the outermost."""
        self.middlewares.use(middleware)

    def listen(self, url: str, *, to: tuple[str, str] | JobType, secret: str = "", **reading: Unpack[Reading]) -> None:
        """Take messages on the stream `url` as answers to jobs of the type `to`. Workers listen to it while they run;
        `hipq listen` does nothing else. With a URL like `webhook://bank`, `hipq.callbacks` takes webhooks instead,
        signed with the secret in the environment variable that `secret` names.

        `key` finds the job's key in a message: a function of the message, or a field of its JSON like "order.id"; by
        default the header `hipq-key`, a CloudEvent's subject, or the message's own key. In the same way `error` finds
        whether the work failed, `answer_id` the id of the answer, and `data` its data (by default the whole JSON)."""
        self.streams.add(url, to, secret, reading)

    # -- running ------------------------------------------------------------------------------------------------------
    def run(
        self, queues: Sequence[str] | None = None, concurrency: int = 10, until_empty: bool = False,
        poll: float = POLL, lease: float = LEASE, drain: float | timedelta | None = None,
        shards: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Run jobs of these `queues` (by default of all), `concurrency` at a time, until SIGINT or SIGTERM (in the main
        thread). `until_empty`: only until nothing is due and nothing executes, and without listening to streams. Jobs
        that wait for an answer or for their time do not count.

        `poll`: seconds between two looks for work. `lease`: seconds this process may be silent (dead, or stopped)
        before its jobs are given to others. `drain`: seconds a stop may take before handlers that still run are given
        back. Without it handlers are waited for, and a database that is away for 30 seconds. `shards`: the names of
        those to work on; by default all, where the instance has several.

        Raises StoreUnavailable if the database is away at the start, so that a program hears of a wrong URL. One that
        goes away later is waited for. `hipq worker` waits in both cases, since nobody looks when it starts.
        """
        from hipq import running  # a program that only adds jobs need not load any of this

        engine = self.worker(queues, concurrency, poll, lease, drain, shards)
        running.run(engine, self.streams.listening([] if until_empty else queues), until_empty)

    @contextmanager
    def working(
        self, queues: Sequence[str] | None = None, concurrency: int = 10, poll: float = POLL, lease: float = LEASE
    ) -> Iterator[None]:
        """Work in a thread until the end of the block, beside whatever else this program does. `queues`, `concurrency`,
        `poll` and `lease` are those of `run`, and so is StoreUnavailable. Handlers that run at the end may finish. It
        forks: begin it before threads of your own. An error of the engine is logged at once, and raised at the end."""
        from hipq import running

        with (
            running.in_thread(self.worker(queues, concurrency, poll, lease), self.name),
            self.streams.listening(queues),
        ):
            yield

    def worker(
        self, queues: Sequence[str] | None = None, concurrency: int = 10, poll: float = POLL, lease: float = LEASE,
        drain: float | timedelta | None = None, shards: Sequence[str] | None = None,
    ) -> AnyEngine:  # fmt: skip
        """What works on some queues, or all of them: an engine, or one for each shard. `run` drives it."""
        from hipq.running import make_engine

        return make_engine(self, queues, concurrency, poll, lease, drain, shards)

    def engine(
        self, queues: Sequence[str] | None = None, concurrency: int = 10, poll: float = POLL, lease: float = LEASE,
        drain: float | timedelta | None = None,
    ) -> Engine:  # fmt: skip
        """The engine of an instance that has one database."""
        from hipq.engine.loop import Engine

        made = self.worker(queues, concurrency, poll, lease, drain)
        if not isinstance(made, Engine):
            made.close()
            raise Invalid("this instance has shards, each with an engine of its own: use app.run, or app.worker")
        return made

    # -- answers and results ------------------------------------------------------------------------------------------
    def answer(
        self, queue: str, type: str, key: str, data: Any = None, *, answer_id: str | None = None, error: bool = False,
        attempt: int | None = None, tenant: str | None = None,
    ) -> Answered:  # fmt: skip
        """Deliver the answer `data` to the job of this `queue` and `type` that has this `key`. Returns what became of
        it; by then the answer is stored.

        `answer_id` tells the answer from others to the key: a second one with the same id is a duplicate. `error`: it
        says that the work failed. `attempt`: the attempt it is for, for job types that refuse answers to others.
        `tenant`: the tenant of a daemon whose job is meant; without it, a job that has no tenant."""
        options: dict[str, Any] = {"answer_id": answer_id, "error": error, "attempt": attempt, "tenant": tenant}
        return self.answers.deliver([self.declared.find(queue).arrived(type, key, data, **options)])[0].outcome

    aanswer = awaitable(answer)

    def answer_many(self, answers: Iterable[Mapping[str, Any]]) -> list[Answered]:
        """Deliver many answers, each with the names and values that `answer` takes, a thousand per transaction. If this
        raises, some thousands may be stored: give each an `answer_id`, and deliver all of them again."""
        from hipq.answers.arrive import arrive_many  # most programs bring one at a time

        news = arrive_many(answers, self.declared.find, self.store.now())
        return [delivered.outcome for delivered in self.answers.deliver(news)]

    aanswer_many = awaitable(answer_many)

    @property
    def answers(self) -> Inbox:
        """The answers that arrived: to list, count, replay, give another key, drop."""
        from hipq.answers.inbox import Inbox  # a program that only adds jobs need not load it

        return Inbox(self.store, self.events, {number: queue for queue in self.queues for number in queue.numbers})

    @property
    def cron(self) -> CronSchedules:
        """The cron schedules: to list, add, change, pause and remove, while engines run."""
        from hipq.cron import CronSchedules  # most programs have none

        return CronSchedules(self)

    def result(self, job_id: int, timeout: float | timedelta | None = None) -> Any:
        """The result of a job, once it has ended. JobFailed if it has none; TimeoutError if that takes longer."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        return self.jobs.result(self.database.results.of(self.jobs.row(job_id), limit))

    async def aresult(self, job_id: int, timeout: float | timedelta | None = None) -> Any:
        """`result` for async code: any number of these wait together, and none of them holds a thread."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        row = await in_thread(lambda: self.jobs.row(job_id))  # a look into the database
        return self.jobs.result(await self.database.results.aof(row, limit))

    @property
    def callback_url(self) -> str:
        """Where `hipq.callbacks` can be reached from outside; "" if nothing says so."""
        from hipq.config import callback_url  # most programs are not called back

        self._callback_url = callback_url(self._callback_url)
        return self._callback_url

    # -- jobs and queues ----------------------------------------------------------------------------------------------
    @property
    def queues(self) -> list[Queue]:
        """The queues, in the order in which they were declared."""
        return list(self.declared)

    def known(self, name: str) -> Queue:
        """A queue that the database has and no code here declares: to look at, and to change."""
        return self.declared.add(Queue(self, name, None))

    def job(self, job_id: int) -> Job[Any]:
        """A job by its id, live or final."""
        return Job(self.jobs.row(job_id), look=self.jobs)

    ajob = awaitable(job)

    def cancel(self, job_id: int, reason: str = "cancelled") -> None:
        """End a job that is not final. A running handler is told (`job.cancelled`, a cancelled task, a signal), and its
        result is not kept. A job that waits for its answer and has a cancel handler ends when an engine has run that
        handler."""
        names.reason(reason)
        self.jobs.operator.one(self.jobs.row(job_id).id, self.jobs.operator.cancel(reason), JobEvent.CANCELLED)

    acancel = awaitable(cancel)

    def retry_now(self, job_id: int) -> None:
        """Let a job that waits for its time, first or again, run now."""
        self.jobs.operator.one(self.jobs.row(job_id).id, self.jobs.operator.run_now, JobEvent.HURRIED)

    aretry_now = awaitable(retry_now)

    def pause(self, queue: str, *, lane: str | None = None, type: str | None = None) -> None:
        """Start nothing more of a `queue`, of one `lane` of it, or of one job `type`. What runs goes on."""
        self.rules.set_paused(queue, lane, type, True)

    def resume(self, queue: str, *, lane: str | None = None, type: str | None = None) -> None:
        """Take back the `pause` that was given with the same arguments."""
        self.rules.set_paused(queue, lane, type, False)

    def why(self, job_id: int) -> Why:
        """Why a job does not run now, or what it is doing: a reason, a sentence, and the facts. Nothing is changed."""
        return self.jobs.why(job_id)

    awhy = awaitable(why)

    def dry_run(self, queue: str, throttler: Throttler, *, limit: int = 1000) -> DryRun:
        """What a throttler would do now with the first jobs of a queue that may start as far as its other rules go:
        ready ones and parked ones, up to `limit` of each. Nothing is changed. What it raises is raised here."""
        return self.rules.dry_run(queue, throttler, limit)

    # -- the database -------------------------------------------------------------------------------------------------
    @property
    def url(self) -> str:
        """The URL of the database, with its password."""
        return self.database.url

    @property
    def store(self) -> Store:
        """The database, opened at its first use."""
        return self.database.store

    @property
    def signer(self) -> Signer:
        """Signs callback URLs, and checks them."""
        return self.database.signer

    def migrate(self) -> list[str]:
        """Bring the database's schema to this version and make the tables of the declared queues; what was applied."""
        applied = self.database.migrate()
        for queue in self.queues:
            _ = queue.number
        return applied

    def close(self) -> None:
        """Close the database. A test ends its own: in one, the end of a web server's lifespan leaves it open."""
        if not self.is_elsewhere:
            self.database.close()

    # -- for the parts ------------------------------------------------------------------------------------------------
    def added(self, news: Sequence[New], stored: Sequence[Stored]) -> None:
        if self.events.wanted(JobEvent.ADDED):
            for new, one in zip(news, stored, strict=True):
                if not one.duplicate:
                    queue = self.declared.of_job(one.id)
                    self.events.emit(JobEvent.ADDED, new.create_time, queue.name, blank(new, one.id))

    def __repr__(self) -> str:
        return f"<Hipq {self.name} on {without_password(self.url)}>"
