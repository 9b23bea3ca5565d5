"""`Hipq`: one instance, put together from its parts. This is composition; the work is in `hipq.engine`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hipq.engine.accept import Coalescer, LaneBy
from hipq.engine.prune import prune
from hipq.engine.pulse import LEASE, POLL
from hipq.errors import Conflict, Invalid, NotFound, shown
from hipq.events import Events
from hipq.job import moves, names
from hipq.job.answer import DEFAULT_KEEPING, Answered, Keeping
from hipq.job.fault import Fault
from hipq.job.model import Change, New, Row, blank, queue_of
from hipq.job.names import TableNaming, default_table_naming, whole
from hipq.job.order import Aged, order
from hipq.job.states import ANSWERED, CALLING_OFF, FINAL, MOVES, PHASES, SCHEDULED, WAITING
from hipq.job.view import Job
from hipq.job.when import seconds, to_datetime
from hipq.job.why import Why
from hipq.job.windows import is_open, opening
from hipq.queue import Queue
from hipq.stores.base import Claim, Filter, Store, Stored
from hipq.stores.clock import Clock, SystemClock
from hipq.stores.open import open_store, url_of, without_password
from hipq.throttlers.limit import Limit
from hipq.throttlers.rules import AnyLimit, Rules, checked

if TYPE_CHECKING:
    from hipq.answers.inbox import Inbox
    from hipq.answers.results import Results
    from hipq.engine.loop import Engine
    from hipq.throttlers.code import DryRun, Throttler

_MOVED_ON = "job {} moved on while it was being changed; look at it again"


class Hipq:
    """An instance: a name, a database, queues. `db` is a URL or a mapping; without one, $HIPQ_DATABASE_URL is used, and
    without that a SQLite file named after the instance, in the current folder."""

    def __init__(
        self,
        name: str,
        db: str | Mapping[str, Any] | None = None,
        *,
        table_naming: TableNaming | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = names.name(name, "the instance's name")
        self.url = url_of(db if db is not None else os.environ.get("HIPQ_DATABASE_URL") or f"sqlite:///{name}.db")
        self.events = Events()
        self._naming = table_naming or default_table_naming
        self._clock = clock
        self.steady = (clock or SystemClock()).steady
        self._queues: dict[str, Queue] = {}
        self._store: Store | None = None
        self._coalescer: Coalescer | None = None
        self._waiting_for: Results | None = None
        self._lock = threading.Lock()

    @property
    def store(self) -> Store:
        """The database, opened at its first use."""
        if self._store is None:
            with self._lock:
                if self._store is None:
                    self._store = open_store(self.url, self._clock)
        return self._store

    @property
    def coalescer(self) -> Coalescer:
        if self._coalescer is None:
            self._coalescer = Coalescer(self.store, self.added)
        return self._coalescer

    @property
    def queues(self) -> list[Queue]:
        return list(self._queues.values())

    def queue(
        self,
        name: str,
        *,
        throttle_limit: int = 0,
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
        for what, code in (("throttler", throttler), ("lane_by", lane_by)):
            if code is not None and not callable(code):
                raise Invalid(f"{what} must be a function, not {shown(code)}")
        names.one_of(lanes, "choice for lanes", ("ordered", "fair"))
        keeping = Keeping(
            seconds(answer_ttl, "answer_ttl", least=1),
            seconds(early_window, "early_window"),
            seconds(answer_memory, "answer_memory"),
        )
        declared = Rules(checked(limits, throttle_limit), lanes=lanes, throttled=throttler is not None, keeping=keeping)
        self._queues[name] = Queue(self, name, _order(order, grain), declared, throttler, lane_by)
        return self._queues[name]

    def register(self, queue: str) -> int:
        table = names.table(self._naming(self.name, queue))
        return self.store.queue(self.name, queue, table).number

    # -- running ----------------------------------------------------------------------------------------------------
    def run(
        self,
        queues: Sequence[str] | None = None,
        concurrency: int = 10,
        until_empty: bool = False,
        poll: float = POLL,
        lease: float = LEASE,
    ) -> None:
        """Work until asked to stop by SIGINT or SIGTERM (in the main thread). With `until_empty`, until nothing is due
        and nothing executes (jobs that wait for an answer or for their time do not count).

        `lease`: seconds this process may be silent (dead, or stopped) before its jobs are given to others.
        """
        engine = self.engine(queues, concurrency, poll, lease)
        try:
            with _stopped_by_signals(engine.stop):
                engine.run(until_empty)
        finally:
            engine.hands.close()
        if engine.unfit:
            raise RuntimeError(f"{engine.unfit}: this process must be replaced")

    def engine(
        self,
        queues: Sequence[str] | None = None,
        concurrency: int = 10,
        poll: float = POLL,
        lease: float = LEASE,
    ) -> Engine:
        """An engine over some queues, or all of them; `run` drives it."""
        from hipq.engine.hands import RealHands  # a program that only adds jobs need not load any of this
        from hipq.engine.launch import Launcher
        from hipq.engine.loop import Engine
        from hipq.runners.processes import Nursery

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
        launcher = Launcher(lambda: self.store.now(), self.steady, lambda queue: self._queues[queue].chained)
        nursery = Nursery(lambda job: launcher.serve(job, lambda queue, job_type: self._queues[queue].spec(job_type)))
        try:
            served = [queue.for_engine() for queue in chosen]  # opens the store, whose threads must not be forked
            hands = RealHands(nursery, launcher, concurrency, self.store.nudge, self.store.hush)
        except BaseException:
            nursery.close()
            raise
        return Engine(
            self.store,
            served,
            hands,
            self.events,
            self.steady,
            concurrency=concurrency,
            poll=poll,
            lease=lease,
            added=self.added,
        )

    # -- answers ----------------------------------------------------------------------------------------------------
    def answer(
        self,
        queue: str,
        type: str,
        key: str,
        data: Any = None,
        *,
        answer_id: str | None = None,
        error: bool = False,
        attempt: int | None = None,
    ) -> Answered:
        """Bring the answer of the job of this type that has this key; what became of it. It is kept when this returns.

        `answer_id` tells it from other answers to the key: a second one with the same id is a duplicate. `error`: it
        says that the work failed. `attempt`: the attempt it is an answer to, for job types that fence others off.
        """
        options = {"answer_id": answer_id, "error": error, "attempt": attempt}
        return self.inbox.come([self._queue(queue).arrived(type, key, data, **options)])[0].outcome

    def answer_many(self, answers: Iterable[Mapping[str, Any]]) -> list[Answered]:
        """Bring many answers, each with the names and values that `answer` takes: a thousand at a time in one
        transaction. If this raises, some thousands may be kept: give each an `answer_id`, and bring all of them again.
        """
        news = []
        if not isinstance(answers, Iterable):
            raise Invalid(f"answers must be a list of mappings, not {shown(answers)}")
        for one in answers:
            if not isinstance(one, Mapping) or not {"queue", "type", "key"} <= one.keys():
                raise Invalid(f"an answer is a mapping with queue, type, key and data, not {shown(one)}")
            if unknown := one.keys() - _ANSWER_FIELDS:
                raise Invalid(f"an answer has no {', '.join(map(str, unknown))}: {', '.join(sorted(_ANSWER_FIELDS))}")
            options = {name: value for name, value in one.items() if name not in ("queue", "type", "key", "data")}
            news.append(self._queue(one["queue"]).arrived(one["type"], one["key"], one.get("data"), **options))
        return [delivered.outcome for delivered in self.inbox.come(news)]

    @property
    def inbox(self) -> Inbox:
        """The answers that came: to list, replay, re-key, drop."""
        from hipq.answers.inbox import Inbox  # a program that only adds jobs need not load it

        return Inbox(self.store, self.events, {queue.number: queue for queue in self.queues})

    def result(self, id: int, timeout: float | timedelta | None = None) -> Any:
        """The result of a job, once it has ended. JobFailed if it has none; TimeoutError if that takes longer."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        return self._results.of(self._row(id), limit)

    async def aresult(self, id: int, timeout: float | timedelta | None = None) -> Any:
        """`result` for async code: any number of these wait together, and none of them holds a thread."""
        import asyncio

        limit = None if timeout is None else seconds(timeout, "timeout")
        row = await asyncio.to_thread(self._row, id)  # a look into the database
        return await self._results.aof(row, limit)

    @property
    def _results(self) -> Results:
        if self._waiting_for is None:
            from hipq.answers.results import Results  # most programs wait for no result

            store = self.store
            with self._lock:
                self._waiting_for = self._waiting_for or Results(store, self.events)
        return self._waiting_for

    # -- looking ----------------------------------------------------------------------------------------------------
    def job(self, id: int) -> Job[Any]:
        """A job by its id, live or final."""
        return Job(self._row(id))

    def jobs(
        self,
        queue: str,
        *,
        type: str = "",
        key: str = "",
        state: str = "",
        phase: str = "",
        after: int = 0,
        limit: int = 100,
    ) -> list[Job[Any]]:
        """Jobs of a queue, in the order they were added; `after` the last id of one page gives the next."""
        whole(limit, "limit", 1, 10_000)
        whole(after, "after", 0, (1 << 63) - 1)
        for value, check in ((type, names.job_type), (key, names.key)):
            if value:
                check(value)
        if state:
            names.one_of(state, "state", MOVES)
        if phase:
            names.one_of(phase, "phase", [name for some in PHASES.values() for name in some])
        wanted = Filter(self._queue(queue).number, type, key, state, phase, after=after, limit=limit)
        return [Job(row) for row in self.store.find(wanted)]

    def why(self, id: int) -> Why:
        """Why a job does not run now, or what it is doing: a reason, a sentence, and the facts. Nothing is changed."""
        from hipq.engine.why import passed, why  # a program that only adds jobs need not load it

        queue = self._by_number(self._row(id).id)
        limits, engines = self.store.limits(queue.number), self.store.engines()
        row = self._row(id)  # read last: a job that was claimed meanwhile would be found to stand in its own way
        heavy = [found for other in passed(row, limits) if (found := self.store.get(other))]
        served = [one.critical.get(str(queue.number), []) for one in engines]
        declared = [one.name for one in queue.job_types if one.spec.critical]
        critical = any(row.job_type in names for names in (*served, declared))
        return why(row, limits, engines, self.store.now(), critical, heavy)

    def dry_run(self, queue: str, throttler: Throttler, *, limit: int = 1000) -> DryRun:
        """What a throttler would do now with the first jobs of a queue that may start as far as its other rules go:
        ready ones and parked ones, up to `limit` of each. Nothing is changed. What it raises is raised here."""
        from hipq.engine.admit import HEAD
        from hipq.throttlers.code import DryRun, verdict

        whole(limit, "limit", 1, 10_000)
        chosen, now = self._queue(queue), self.store.now()
        critical = tuple(one.name for one in chosen.job_types if one.spec.critical)
        claim = Claim(chosen.number, tuple(one.name for one in chosen.job_types), limit, critical)
        asked = self.store.ask(0, claim, HEAD, 0, limit, now)
        assert asked is not None
        specs = {one.name: one.spec for one in chosen.job_types}
        return DryRun.of(verdict(throttler, asked.due, asked.running, specs, now), len(asked.running))

    # -- changing ---------------------------------------------------------------------------------------------------
    def cancel(self, id: int, reason: str = "cancelled") -> None:
        """End a job that is not final. If its handler is running, what that comes to is not kept. One that waits for
        its answer and has a cancel handler ends when an engine has run that."""
        names.reason(reason)
        from hipq.job import awaiting, waiting

        def cancelled(row: Row, now: int) -> Row | None:
            cause = waiting.load(row.wait).cause
            if row.phase == CALLING_OFF and cause and cause.kind == "cancelled":
                return None  # it is on its way
            if row.phase in (WAITING, ANSWERED) and waiting.load(row.wait).calls_off:
                return awaiting.called_off(row, Fault("cancelled", reason), now)
            return moves.cancelled(row, reason, now)

        self._change(id, cancelled, "cancelled")

    def retry_now(self, id: int) -> None:
        """Let a job that waits for its time, first or again, run now."""

        def hurried(row: Row, now: int) -> Row:
            if row.phase != SCHEDULED:
                raise Conflict(f"job {row.id} is {row.state} ({row.phase}); only a scheduled job can be hurried")
            if not is_open(row.time_windows, now):
                opens = to_datetime(opening(row.time_windows, now)).isoformat()
                raise Conflict(f"job {row.id} may not start now: its window opens at {opens}")
            return moves.hurried(row, self._by_number(row.id).order, now)

        self._change(id, hurried, "hurried")

    def set_limit(self, queue: str, to: int | Sequence[AnyLimit] | None) -> None:
        """Change a queue's limits while it runs: a number replaces its `limit` (below 1 = none) and leaves the others,
        a list replaces them all, None goes back to what the code says. Every engine's next claim goes by it."""

        declared = self._queue(queue).declared.limits

        def change(rules: Rules) -> Rules:
            if to is None:
                return replace(rules, changed=None)
            if isinstance(to, bool):
                raise Invalid(f"a limit is a whole number or a list of limits, not {to}")
            if isinstance(to, int):
                before = rules.in_force if rules.changed is not None else declared or rules.limits
                others = [one for one in before if not isinstance(one, Limit)]
                if to < 1:  # shares stay, for when there is a limit again
                    return replace(rules, changed=tuple(others))
                return replace(rules, changed=checked(others, to))
            return replace(rules, changed=checked(to))

        self._change_rules(queue, change)

    def pause(self, queue: str, *, lane: str | None = None, type: str | None = None) -> None:
        """Start nothing more of a queue, of one of its lanes, or of one job type. What runs goes on."""
        self._change_rules(queue, lambda rules: _paused(rules, lane, type, True))

    def resume(self, queue: str, *, lane: str | None = None, type: str | None = None) -> None:
        """Take back the `pause` that was given in the same words."""
        self._change_rules(queue, lambda rules: _paused(rules, lane, type, False))

    def _change_rules(self, queue: str, change: Callable[[Rules], Rules]) -> None:
        changed = self._queue(queue)
        changed.learn(self.store.change_rules(changed.number, change))
        self.events.emit("rules changed", self.store.now(), queue)

    def prune(self, older_than: float | timedelta, queue: str | None = None) -> int:
        """Delete jobs that have been final for longer than this; how many."""
        before = self.store.now() - round(seconds(older_than, "older_than") * 1e6)
        total = 0
        for one in [self._queue(queue)] if queue else self.queues:
            for count in prune(self.store, one.number, before):
                total += count
                self.events.emit("pruned", self.store.now(), one.name, count=count)
        return total

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
            self._store = self._coalescer = self._waiting_for = None

    # -- for the parts ----------------------------------------------------------------------------------------------
    def added(self, news: Sequence[New], stored: Sequence[Stored]) -> None:
        if self.events.wanted("added"):
            for new, one in zip(news, stored, strict=True):
                if not one.duplicate:
                    self.events.emit("added", new.create_time, self._by_number(one.id).name, blank(new, one.id))

    def _change(self, id: int, move: Callable[[Row, int], Row | None], event: str) -> None:
        """Read, move, write if nobody was faster; after a few tries it is somebody else's turn. A move may say that
        there is nothing to do."""
        for _ in range(10):
            row, now = self._row(id), self.store.now()
            if row.state == FINAL:
                raise Conflict(f"job {id} is final ({row.code}); that never changes")
            after = move(row, now)
            if after is None:
                return
            change = Change(row, after, (), event)
            if not self.store.turn(0, [change], [], now).lost:
                self.store.ring()
                name = CALLING_OFF if change.after.phase == CALLING_OFF else event
                self.events.emit(name, now, self._by_number(id).name, change.after)
                return
        raise Conflict(_MOVED_ON.format(id))

    def _row(self, id: int) -> Row:
        whole(id, "a job id", 1, (1 << 63) - 1)
        for queue in self.queues:
            if queue.number == queue_of(id):
                row = self.store.get(id)
                if row is not None:
                    return row
        raise NotFound(f"there is no job {id} in {self.name}")

    def _by_number(self, id: int) -> Queue:
        return next(queue for queue in self.queues if queue.number == queue_of(id))

    def _queue(self, name: str) -> Queue:
        if not isinstance(name, str) or name not in self._queues:
            raise Invalid(f"no such queue: {shown(name)}; there are {', '.join(self._queues) or 'none'}")
        return self._queues[name]

    def __repr__(self) -> str:
        return f"<Hipq {self.name} on {without_password(self.url)}>"


_order = order
_ANSWER_FIELDS = {"queue", "type", "key", "data", "answer_id", "error", "attempt"}


def _paused(rules: Rules, lane: str | None, job_type: str | None, wanted: bool) -> Rules:
    if lane is not None and job_type is not None:
        raise Invalid("pause a lane or a job type, not both at once")
    if lane is not None:
        return replace(rules, paused_lanes=_with(rules.paused_lanes, names.lane(lane), wanted))
    if job_type is not None:
        return replace(rules, paused_types=_with(rules.paused_types, names.job_type(job_type), wanted))
    return replace(rules, paused=wanted)


def _with(some: tuple[str, ...], one: str, wanted: bool) -> tuple[str, ...]:
    return tuple(sorted({*some, one} if wanted else {*some} - {one}))


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM stop the engine while it runs in the main thread: once gently, twice at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
