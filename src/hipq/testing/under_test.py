"""`harness(app)`: an application under test, on a database of its own and a clock that is turned by hand."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypedDict, Unpack
from uuid import uuid4

from hipq.answers.results import Results
from hipq.app import Hipq
from hipq.callback.webhook import SCHEME, Webhook
from hipq.database import Database
from hipq.errors import Invalid, JobFailed, shown
from hipq.job import payload
from hipq.job.model import Row
from hipq.job.names import whole
from hipq.job.states import FINAL, Code
from hipq.job.view import Job
from hipq.job.when import moment, to_datetime
from hipq.job_type import JobType
from hipq.stores.open import url_of
from hipq.testing.clock import START, HandClock
from hipq.testing.drive import Drive
from hipq.testing.expect import Expectations, of_these
from hipq.testing.inline import Ran
from hipq.testing.replies import Replies
from hipq.testing.sent import Outbox, Sent
from hipq.transports import Message, address
from hipq.transports.recording import recording
from hipq.transports.webhooks import ID

_entering = threading.Lock()
"""Held while an app is put on a test's database, so that of two tests only one gets it."""


class Passing(TypedDict, total=False):
    """How much time passes."""

    seconds: float
    minutes: float
    hours: float
    days: float


class HarnessOptions(TypedDict, total=False):
    """What `harness` takes beside the apps."""

    db: str | Mapping[str, Any] | None
    fresh: bool
    start: datetime | None
    max_jobs: int
    send_for_real: bool


class HarnessFactory(Protocol):
    """What the fixture `hipq_harness` is: it makes a harness that ends with the test."""

    def __call__(self, *apps: Hipq, **options: Unpack[HarnessOptions]) -> Harness: ...


@contextmanager
def harness(
    *apps: Hipq,
    db: str | Mapping[str, Any] | None = None,
    fresh: bool = False,
    start: datetime | None = None,
    max_jobs: int = 10_000,
    send_for_real: bool = False,
) -> Iterator[Harness]:
    """Until the block ends these apps are on a database in memory, each on its own, and on a clock that stands still
    until a test turns it. Then they have their own again, whatever happened. (An app on one of Django's databases is in
    the test database of that, with queues that are empty, on the test's own connection.)

    hipq sends nothing meanwhile: what a declared request or `transports.send` would send is in `sent` instead.

    `db`: another database, which should be empty; or, with `fresh`, a PostgreSQL database in which the test gets a
    schema of its own, that is dropped after it (`world.db` is its URL). `start`: what time it is at first (2027-01-15
    08:00 UTC, a Friday). `max_jobs`: how many may run while no time passes; more are taken for an endless loop.
    `send_for_real`: requests and messages leave the process, and `sent` stays empty.
    """
    if not apps or not all(isinstance(app, Hipq) for app in apps):
        raise Invalid(f"give the apps to test, not {shown(apps[0]) if len(apps) == 1 else 'nothing'}")
    clock = HandClock(START if start is None else moment(start, "start"))
    whole(max_jobs, "max_jobs", 1, 1_000_000_000)
    with ExitStack() as stack:
        if fresh:
            from hipq.testing.schema import own_schema  # it needs psycopg

            if db is None:
                raise Invalid("fresh=True is for PostgreSQL: say with db= in which database the test gets its schema")
            db = stack.enter_context(own_schema(url_of(db)))
        for app in apps:
            stack.enter_context(elsewhere(app, db, clock))
        made = Harness(apps, clock, max_jobs, send_for_real)
        stack.enter_context(recording(made._outbox))
        stack.callback(made.close)
        for app in apps:
            app.migrate()
            app.database.results = ResultsNow(app, made.run_until_idle, made.arun_until_idle)
        yield made


@contextmanager
def elsewhere(app: Hipq, db: str | Mapping[str, Any] | None, clock: HandClock) -> Iterator[None]:
    """Until the block ends the app is on another database, by another clock. What it had open stays open, and is what
    it goes on with afterwards."""
    there = app.database.in_tests(app, clock) if db is None else Database(app, db, clock)
    with _entering:
        if app.is_elsewhere:
            raise Invalid(f"{app.name} is in use by a test already: let that end before another begins")
        before, app.database, app.is_elsewhere = app.database, there, True
    back = {queue.name: queue.leave() for queue in app.queues}
    try:
        yield
    finally:
        try:
            there.close()
        finally:
            for queue in app.queues:
                back.get(queue.name, queue.leave)()
            app.database, app.is_elsewhere = before, False


class Harness(Expectations):
    """Lets an application's jobs run in the thread of the test, when the test says so."""

    def __init__(self, apps: Sequence[Hipq], clock: HandClock, max_jobs: int, send_for_real: bool) -> None:
        super().__init__(apps, clock)
        self._replies = Replies()
        self._outbox = Outbox(lambda: self.now, lambda job: self._find(job, None), send_for_real)
        self._drive = Drive(apps, clock, self._replies, self._outbox, max_jobs)
        self._running = False
        self._loop: asyncio.Runner | None = None

    @property
    def db(self) -> str:
        """The URL of the database that the test is on."""
        return self._apps[0].url

    @property
    def now(self) -> datetime:
        """What time it is."""
        return to_datetime(self._clock.now())

    # -- running ----------------------------------------------------------------------------------------------------
    def run_until_idle(self, *, raise_errors: bool = False) -> list[Ran]:
        """Run everything that is due now, and what comes of it; what ran, in order.

        Handlers are called here, one after the other: those of `process=True` too, and `async def` ones on one event
        loop. What they raise is the job's error, as always; with `raise_errors` the first is raised here as well.
        """
        return self._run(self._clock.now(), raise_errors)

    def advance(self, by: timedelta | None = None, *, raise_errors: bool = False, **time: Unpack[Passing]) -> list[Ran]:
        """Let time pass. What becomes due on the way runs at its own moment; what ran, in order."""
        return self._run(self._after(by, time), raise_errors)

    def advance_to(self, at: datetime, *, raise_errors: bool = False) -> list[Ran]:
        """Let time pass until then."""
        return self._run(self._at(at), raise_errors)

    async def arun_until_idle(self, *, raise_errors: bool = False) -> list[Ran]:
        """`run_until_idle` for async tests: `async def` handlers run on the test's own event loop."""
        return await self._arun(self._clock.now(), raise_errors)

    async def aadvance(
        self, by: timedelta | None = None, *, raise_errors: bool = False, **time: Unpack[Passing]
    ) -> list[Ran]:
        """`advance` for async tests."""
        return await self._arun(self._after(by, time), raise_errors)

    async def aadvance_to(self, at: datetime, *, raise_errors: bool = False) -> list[Ran]:
        """`advance_to` for async tests."""
        return await self._arun(self._at(at), raise_errors)

    def _run(self, until: int, raise_errors: bool) -> list[Ran]:
        with self._alone(), closing(self._drive.steps(until, raise_errors)) as steps:
            for launcher, running in steps:
                _refuse_a_running_loop()
                self._own_loop.run(launcher.run_async(running), context=contextvars.copy_context())
        return self._drive.ran

    async def _arun(self, until: int, raise_errors: bool) -> list[Ran]:
        with self._alone(), closing(self._drive.steps(until, raise_errors)) as steps:
            for launcher, running in steps:
                await launcher.run_async(running)
        return self._drive.ran

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._running:
            raise Invalid("jobs are running: a handler cannot let time pass, or wait for other jobs")
        self._running = True
        try:
            yield
        finally:
            self._running = False

    @property
    def _own_loop(self) -> asyncio.Runner:
        if self._loop is None:
            self._loop = asyncio.Runner(loop_factory=asyncio.new_event_loop)  # given: else it becomes the thread's own
        return self._loop

    def _after(self, by: timedelta | None, time: Passing) -> int:
        if by is not None and not isinstance(by, timedelta):
            raise Invalid(f"say advance(hours=3), or give a timedelta, not {shown(by)}")
        more = timedelta(**time) + (by or timedelta())
        if more < timedelta():
            raise Invalid("time does not run backwards")
        return moment(self.now + more, "the time")

    def _at(self, at: datetime) -> int:
        until = moment(at, "at")
        if until < self._clock.now():
            raise Invalid(f"time does not run backwards: it is {self.now.isoformat()} already")
        return until

    # -- the outside world ------------------------------------------------------------------------------------------
    def replies(
        self,
        job_type: JobType,
        reply: Any,
        *,
        after: float | timedelta = 0,
        error: bool = False,
        times: int = 1,
        early: bool = False,
    ) -> None:
        """From now on each job of this type that begins to wait gets this answer: data, a `Reply`, or a function of the
        job that returns either, or a list of replies. None = it gets none.

        `after` some time; as an `error`; so many `times`; or `early`, before its handler has returned.
        """
        of_these(self._apps, job_type)
        self._replies.say(job_type, reply, after=after, error=error, times=times, early=early)

    @property
    def sent(self) -> list[Sent]:
        """The requests and messages that would have been sent, in order; `sent[0].answer(...)` answers one of them."""
        return self._outbox.sent

    def responds(
        self, to: str, reply: Any = None, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """From now on requests by HTTP to URLs that begin with `to` get this reply: JSON data, bytes, or a function of
        the `Sent` that returns either. (Without this the reply is 200, and empty.) An exception is raised where the
        request is sent, on streams too: `TransportUnavailable("no route to the bank")`."""
        self._outbox.respond(to, reply, whole(status, "status", 200, 599), headers or {})

    def receive(self, url: str, data: Any = None, *, key: str = "", headers: Mapping[str, str] | None = None) -> None:
        """A message comes on a stream that `listen` or `answers=` names, or a webhook that is signed well. The message
        is read as they say, and its answer kept. `data` is sent as JSON, bytes as they are; `key` is the message's
        own."""
        body = data if isinstance(data, bytes) else payload.encode(data, "the message").encode()
        if url.startswith(SCHEME):
            where, name = url, url.removeprefix(SCHEME)
            hooks = [(app, hook) for app in self._apps if (hook := app.streams.webhooks.get(name))]
            keep: list[Callable[[list[Message]], None]] = [partial(_keep_webhook, *one) for one in hooks]
        else:
            where, name = address(url).identity, address(url).name
            listeners = [one for app in self._apps for one in app.streams.listeners() if one.stream == where]
            keep = [one.keep for one in listeners]
        if not keep:
            raise Invalid(f"nobody listens to {where}")
        message = Message(body, (headers or {}).get(ID, uuid4().hex), key=key, headers=headers, subject=name)
        for one in keep:
            one([message])

    def close(self) -> None:
        """End what runs for this test. `harness` does it."""
        try:
            if self._loop is not None:
                self._loop.close()
        finally:
            self._drive.close()


def _keep_webhook(app: Hipq, webhook: Webhook, messages: Sequence[Message]) -> None:
    app.answers.deliver([webhook.answer(message, app.store.now()) for message in messages])


def _refuse_a_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Invalid(
        "an async handler is due, and this test has an event loop running: await arun_until_idle() or aadvance()"
    )


class ResultsNow(Results):
    """`app.result` in a test: nobody works beside it, so while it waits what is due runs, and no time passes."""

    def __init__(self, app: Hipq, work: Callable[[], object], awork: Callable[[], Awaitable[object]]) -> None:
        self._app = app
        self._work = work
        self._awork = awork

    def close(self) -> None: ...

    def of(self, row: Row, seconds: float | None) -> Row:  # noqa: ARG002
        if row.state != FINAL:
            self._work()
        return self._succeeded(row)

    async def aof(self, row: Row, seconds: float | None) -> Row:  # noqa: ARG002
        if row.state != FINAL:
            await self._awork()
        return self._succeeded(row)

    def _succeeded(self, before: Row) -> Row:
        row = self._app.store.get(before.id) or before
        if row.state != FINAL:
            raise TimeoutError(f"job {row.id} has not ended, and waiting for it lets no time pass: advance(...) does")
        if row.code != Code.OK:
            raise JobFailed(Job(row))
        return row
