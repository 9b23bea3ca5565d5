"""Running the jobs of an instance: an engine put together from its parts, and driven here or in a thread."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from hipq.engine.executor import LocalExecutor
from hipq.engine.launch import Launcher, bare
from hipq.engine.loop import Engine
from hipq.engine.setup import Setup
from hipq.errors import Invalid
from hipq.executors.processes import ForkServer
from hipq.job.names import whole
from hipq.job.when import seconds
from hipq.observe import logs
from hipq.signals import each_meant

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.queue import Queue
    from hipq.shards.engines import ShardEngines
    from hipq.stores.protocols import Store

    AnyEngine = Engine | ShardEngines


class Wanted(NamedTuple):
    """How an engine is to work."""

    queues: Sequence[Queue]
    concurrency: int
    poll: float
    lease: float
    drain: float | None
    shards: Sequence[str] | None = None
    """The shards to work on. None = all."""


def make_engine(
    app: Hipq,
    queues: Sequence[str] | None,
    concurrency: int,
    poll: float,
    lease: float,
    drain: float | timedelta | None,
    shards: Sequence[str] | None = None,
) -> AnyEngine:
    """An engine over some queues of an instance, or all of them; or one for each shard."""
    whole(concurrency, "concurrency", 1, 10_000)
    poll, lease = seconds(poll, "poll"), seconds(lease, "lease", least=0.1)
    if not 0.01 <= poll <= 60:
        raise Invalid("poll must be between 0.01 and 60 seconds")
    left = None if drain is None else seconds(drain, "drain")
    wanted = Wanted(app.declared.chosen(queues), concurrency, poll, lease, left, shards)
    return app.database.engine(wanted)


def executor_for(
    app: Hipq, wanted: Wanted, store: Callable[[], Store], done: Callable[[], None] | None = None,
    hands: AbstractContextManager[Any] | None = None,
) -> LocalExecutor:  # fmt: skip
    """What executes the jobs of one engine. It forks: make it before the store is opened, which has threads. `done`:
    called when a handler has ended, if others than this engine are to know of it. `hands`: entered around each handler,
    if several engines have the same hands."""
    find = app.declared.find
    launcher = Launcher(
        lambda: store().now(),
        app.database.steady,
        lambda queue: find(queue).chained,
        app.traces.around if app.traces else bare,
    )
    fork_server = ForkServer(
        lambda job, is_told, send: launcher.serve(
            job, is_told, send, lambda queue, job_type: find(queue).spec(job_type)
        )
    )
    # The waker is looked up each time: a fork, or a move of the jobs, makes it another one.
    done = done or (lambda: store().waker.notify(done=True))
    return LocalExecutor(fork_server, launcher, wanted.concurrency, done, lambda: store().waker.clear(), hands)


def engine_on(
    app: Hipq, wanted: Wanted, store: Store, executor: LocalExecutor, number: Callable[[Queue], int],
    taken_elsewhere: Callable[[], int] = lambda: 0, *, ticks: bool = True,
) -> Engine:  # fmt: skip
    """An engine on one database, in which queues have these numbers. `ticks`: whether cron schedules tick there."""
    served = [queue.for_engine(store, number(queue), ticks=ticks) for queue in wanted.queues]
    return Engine(Setup(
        store, served, executor, app.events, app.database.steady, concurrency=wanted.concurrency, poll=wanted.poll,
        lease=wanted.lease, drain=wanted.drain, added=app.added, taken_elsewhere=taken_elsewhere,
        deliver=lambda kept: app.answers.deliver_inserted(kept),
    ))  # fmt: skip


def run(engine: AnyEngine, listening: AbstractContextManager[None], until_empty: bool) -> None:
    """Drive an engine until it ends or a signal stops it."""
    logs.subscribe(engine.events)  # without it, nobody would hear of a handler that fails
    try:
        with _stopped_by_signals(engine.stop), listening:
            engine.run(until_empty)
    finally:
        engine.close()
    if engine.unfit:
        raise RuntimeError(f"{engine.unfit}: this process must be replaced")


@contextmanager
def in_thread(engine: AnyEngine, app: str) -> Iterator[None]:
    """Drive an engine in a thread until the end of the block."""
    logs.subscribe(engine.events)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            engine.run()
        except BaseException as error:
            failed.append(error)
            logging.getLogger("hipq").exception("the engine of %s failed: no job runs any more", app)

    thread = threading.Thread(target=run, name="hipq-engine", daemon=True)
    thread.start()
    try:
        yield
    finally:
        engine.stop()
        thread.join()
        engine.close()
        if failed:
            raise failed[0]


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
