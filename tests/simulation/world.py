"""One simulated world: engines come and go, clients add and cancel, the clock moves when everybody sleeps."""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hipq.app import Hipq
from hipq.engine.lanes import Guarded
from hipq.engine.loop import Engine
from hipq.engine.setup import Setup
from hipq.errors import StoreUnavailable
from hipq.events import Event
from hipq.job import payload
from hipq.job.answer import Answer
from hipq.job.model import QUEUE_BITS, New, queue_of
from hipq.job.order import aged
from hipq.job.when import SECOND
from hipq.stores.claim_groups import TOP
from hipq.stores.waker import ELSEWHERE, HERE, NO_NEWS, NOTIFIED, News
from hipq.testing.clock import HandClock
from tests.simulation import activity, audit
from tests.simulation.answers import Answers
from tests.simulation.clients import Clients
from tests.simulation.daemon import HOG, TYPES, DaemonExecutor, SimulatedScheduler, of_tenant
from tests.simulation.executor import SimulatedExecutor, SimulatedLauncher
from tests.simulation.faults import Crash, Disk, FaultyStore
from tests.simulation.jobs import Jobs
from tests.simulation.life import Life
from tests.simulation.order import Order
from tests.simulation.outside import Outside, stranger
from tests.simulation.scene import ASK, ERRAND, FENCED, LETTER, URGENT, Scene, scene_of
from tests.simulation.starts import Starts
from tests.simulation.throttle import SimulatedThrottler

LEASE = 10.0
QUIET = 3_600.0
"""Seconds of simulated time after the last fault, within which everything must come to rest."""
RESTLESS = 1_000
"""Turns at one moment that are too many."""


class World:
    def __init__(self, seed: int, *, engines: int = 3, trace: bool = False) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.scene: Scene = scene_of(seed)
        self.clock = HandClock(self.scene.start)
        self.actor = self.call = 0
        """The engine that calls the store now (0 = a client), and which call of all it is."""
        self.codes: dict[int, tuple[str, ...]] = {}
        """By engine, the job types it has code for."""
        self.met: list[int] = []
        """When claims by engines that have code for heavy jobs found some that had to wait."""
        self.faulty = True
        self.relimited = False
        self.answering = 0
        """The last call that brought answers,"""
        self.tended: set[int] = set()
        """and those with which an operator changed the inbox."""
        self.kept: Sequence[Answer] = ()
        """The inbox at the end,"""
        self.phases: set[tuple[str, str]] = set()
        """and the ways jobs went, from phase to phase."""
        self.steps: list[str] = []
        self._print = trace
        self._plans: list[tuple[int, Callable[[], None]]] = []
        self._acts = self._failed_ticks = self._quiet = self._cleared = 0
        self._start = self.clock.steady()
        self.jobs = Jobs(self)
        self.clients = Clients(self)
        self.outside = Outside(self)
        self.throttler = SimulatedThrottler(self)
        self.app = Hipq("sim", "sqlite://", clock=self.clock)
        self.app.events.subscribe(self._tick_failed, "tick failed")
        self._declare()
        self.store = self.app.store
        self._table = f"sim_{self.queue.name}"
        assert self.queue.number
        with self.store._db.writing() as conn:  # type: ignore[attr-defined]
            audit.install(conn, self._table, self)
        self._disk = Disk(self.store._db._conn, self._others_first)  # type: ignore[attr-defined]
        self.store._db._conn = self._disk  # type: ignore[attr-defined]
        self.app.database._store = FaultyStore(self, None).as_store()
        self.stranger = stranger(self.app, self.clock)
        self.stranger.database._store = FaultyStore(self, None).as_store()
        self._lives: list[Life | None] = [None] * engines
        self._born = [self._start + self.chance.randrange(3 * SECOND) for _ in range(engines)]

    def _declare(self) -> None:
        scene = self.scene
        order: Any = self.chance.choice(["time", "priority", aged(10)])
        self.queue = self.app.queue(
            "jobs", order=order, limits=scene.limits, lanes=scene.turns,
            lane_by=(lambda job: job.data["lane"]) if scene.ruled else None,
            throttler=self.throttler if scene.most_running else None, **msgspec.structs.asdict(scene.keeping),
        )  # fmt: skip
        options: dict[str, Any] = {"timeout": 40, "run_timeout": 20, "retry": self.jobs.again}
        work = self.queue.job("work", **options)(self.jobs.handler)
        if scene.ruled:
            self.queue.job(URGENT, **{**options, "retry": None}, critical=True)(self.jobs.handler)
        if scene.lacking:
            self.queue.job(ERRAND, **options)(self.jobs.handler)
        for name in TYPES[1:] if scene.tenants else ():
            self.queue.job(name, **options)(self.jobs.handler)
        if scene.tenants:
            self.queue.job(HOG, **{**options, "timeout": 300, "run_timeout": 120})(self.jobs.handler)
        if scene.answers:
            self._declare_asking(options)
        if scene.missed:
            data = {"marker": audit.CRON, "depth": 2, "tries": 0, "lane": "east"}
            self.clients.submitted[audit.CRON] = payload.encode(data)
            work.cron("* * * * *", data, missed=scene.missed, overlap=scene.overlap, throttle_factor=scene.cron_factor)

    def _declare_asking(self, options: dict[str, Any]) -> None:
        ask = self.queue.job(ASK, **options, on_late=self.jobs.too_late)(self.jobs.asks)
        ask.answered(self.jobs.looks)
        ask.cancelled(self.jobs.calls_off)
        self.queue.job(LETTER, **options)(self.jobs.asks)
        fenced = self.queue.job(FENCED, **options, fence="attempt", lifetime=80)(self.jobs.asks)
        fenced.answered(self.jobs.looks)

    def _tick_failed(self, _event: Event) -> None:
        self._failed_ticks += 1

    # -- faults -----------------------------------------------------------------------------------------------------
    def draw_fault(self, verb: str, engine: bool) -> str:
        if not self.faulty:
            return ""
        if verb == "turn" and engine and self.scene.windows and self.chance.random() < 0.05:
            return "slow"  # a window may close between a claim and its start
        names = ["", "crash before", "crash after", "lost", "away", "slow", "stall", "full"]
        return self.chance.choices(names, [947, 6, 6, 12, 8, 8, 6, 7] if engine else [940, 0, 0, 25, 15, 0, 0, 20])[0]

    def _others_first(self) -> None:
        """A transaction is about to begin: who waits for the lock with it may have it first."""
        if self.scene.answers and self.actor:
            actor, call, full = self.actor, self.call, self._disk.full
            self.actor, self._disk.full = 0, False
            self.outside.cut_in()
            self.actor, self._disk.full = actor, full
            if self.call != call:
                self.call += 1  # what comes now is another transaction than those

    def fill_disk(self, full: bool) -> None:
        self._disk.full = full

    def stall(self, life: Life | None, *, longer_than_lease: bool) -> None:
        """The process is stopped, for longer than its lease or not quite; the others go on meanwhile."""
        leases = self.chance.uniform(1, 3) if longer_than_lease else self.chance.uniform(0, 0.9)
        until = self.clock.steady() + round(leases * LEASE * SECOND)
        lives, index = self._lives, self._lives.index(life)
        lives[index], born = None, self._born[index]
        self._born[index] = until + QUIET_MICROS  # nobody starts in its place
        while self.clock.steady() < until:
            self._step(until)
        lives[index], self._born[index] = life, born

    # -- the scheduler ----------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Live through it; raise Broken if an invariant does not hold."""
        end = self._start + int(self.scene.faulty * SECOND)
        self._plan(end - self._start)
        while self.clock.steady() < end:
            self._step(end)
        self.faulty, self._quiet = False, self.clock.steady()
        self.clients.resume_all()
        self._redeploy()
        self._check_reclaimed_soon()
        if self.queue._crons:
            self._cleared = self.clock.now()
            self.queue._crons.clear()  # what it adds might be more than a lowered limit lets through
            self._redeploy()
        limit = self.clock.steady() + int(QUIET * SECOND)
        while self.clock.steady() < limit and (self._acts or not self._all_final()):
            self._step(limit)
        self._check()

    def _plan(self, span: int) -> None:
        clients, chance = self.clients, self.chance
        steps = chance.randrange(3) if self.scene.steps is None else self.scene.steps
        wanted: list[tuple[int, Callable[[], None]]] = [
            (self.scene.jobs, clients.add), (chance.randrange(6), clients.meddle), (steps, clients.step_clock),
            (chance.randrange(8) if self.scene.ruled else 0, clients.change_rules),
            (chance.randrange(8) if self.scene.answers else 0, self.outside.tend),
            (chance.randrange(3), self._stop_one), (int(self.scene.withdrawn), self._withdraw),
        ]  # fmt: skip
        plans = [(self._start + chance.randrange(span), act) for count, act in wanted for _ in range(count)]
        if self.scene.tenants:  # after the faults, when `patience` looks
            end = self._start + span
            plans += [(end + 70 * SECOND, clients.hog), (end + 75 * SECOND, clients.come_late)]
        self._plans = sorted(plans, key=lambda plan: plan[0])

    def plan(self, at: int, act: Callable[[], None]) -> None:
        """Something more that will happen, at that time."""
        insort(self._plans, (at, act), key=lambda plan: plan[0])

    def _step(self, until: int) -> None:
        """Whoever is due next acts; if nobody is, time passes until somebody is (or `until`)."""
        steady = self.clock.steady()
        if self._plans and self._plans[0][0] <= steady:
            self._plans.pop(0)[1]()
            return
        times = [life.next_at if life else self._born[i] for i, life in enumerate(self._lives)]
        due = [i for i, at in enumerate(times) if at <= steady]
        if due:
            self._act(self.chance.choice(due))
            self._acts += 1
            if self._acts > RESTLESS:
                raise audit.Broken(f"an engine does not sleep: {RESTLESS} turns and no time passed")
            return
        self._acts = 0
        times += [plan[0] for plan in self._plans[:1]]
        self.clock.advance(seconds=max(min([*times, until]) - steady, 1) / SECOND)

    def _act(self, index: int) -> None:
        life = self._lives[index]
        try:
            if life is None:
                self._lives[index] = self._new_life(index)
            elif any(at <= self.clock.steady() for at, _ in life.asides):
                self._run_aside(life)
            else:
                self._turn(life)
        except StoreUnavailable:
            if life is None:
                self._born[index] = self.clock.steady() + SECOND
                return
            life.failures += 1
            life.wake_at = self.clock.steady() + round(min(0.05 * 2**life.failures, 2.0) * SECOND)
        except Crash:
            self.trace(life, "crashed")
            self._die(index)

    def _turn(self, life: Life) -> None:
        if life.woken:
            news, life.woken = life.woken, NO_NEWS
            life.engine.wake(news)
        pause = life.engine.turn()
        life.failures = 0
        if life.scheduler:
            life.scheduler.check(life.engine.in_flight.values())
        life.wake_at = self.clock.steady() + round(pause * SECOND)
        end = life.hands.next_end()
        if end and end < life.wake_at:  # a handler that ends notifies
            life.wake_at, life.woken = max(end, self.clock.steady()), NOTIFIED
        engine = life.engine
        if engine.stopping and engine.is_empty:
            engine.leave()
            self._die(self._lives.index(life))

    def _stop_one(self) -> None:
        """Somebody asks an engine to stop, once or twice."""
        lives = [life for life in self._lives if life]
        if lives:
            life = self.chance.choice(lives)
            life.engine.stop_requests.asked += self.chance.randint(1, 2)
            life.wake_at = min(life.wake_at, self.clock.steady())
            self.trace(life, "is asked to stop")

    def _run_aside(self, life: Life) -> None:
        life.asides.sort(key=lambda aside: aside[0])
        life.asides.pop(0)[1]()
        life.wake_at, life.woken = min(life.wake_at, self.clock.steady()), NOTIFIED

    def _die(self, index: int) -> None:
        self._lives[index] = None
        self._last_death = self.clock.steady()
        self._born[index] = self.clock.steady() + self.chance.randrange(20 * SECOND)

    def notify(self) -> None:
        """Some wake-up calls go unheard: the poll is there for those."""
        for life in self._lives:
            if life and self.chance.random() < 0.7:
                life.wake_at, life.woken = min(life.wake_at, self.clock.steady()), {**life.woken, **self._news()}

    def _news(self) -> News:
        """Of this process, or of another one: of a queue, or of none in particular."""
        number = self.clock.steady()
        return ({HERE: TOP}, {self.queue.number: ("", number << QUEUE_BITS)}, {ELSEWHERE: ("", number << QUEUE_BITS)})[
            number % 3
        ]

    def notice(self, new: New) -> None:
        """A job was added over HTTP, at one of the daemons perhaps: that one hears where it is."""
        lives = [life for life in self._lives if life]
        if lives and self.chance.random() < 0.5:
            self.chance.choice(lives).engine.notice(new.queue, [(new.job_type, new.lane)])

    def _chained(self, job_type: Any, data: Any, options: dict[str, Any]) -> New:
        new = self.queue.chained(job_type, data, options)
        return of_tenant(new, data) if self.scene.tenants else new

    def _new_life(self, index: int) -> Life:
        life = Life(self.clock.steady())
        life.throttler, life.crons = self.queue.throttler, len(self.queue._crons)
        launcher = SimulatedLauncher(self.clock.now, self.clock.steady, lambda _queue: self._chained)
        life.hands = (DaemonExecutor if self.scene.tenants else SimulatedExecutor)(self, launcher, 4, life)
        store = FaultyStore(self, life).as_store()
        chance = random.Random(self.chance.random())
        queue = self.queue.for_engine()
        lacking = {dict(enumerate(self.scene.lacking, 1)).get(index, "")}
        if self.scene.unread and index == 1:
            lacking |= {ASK, LETTER}
        queue = replace(queue, specs={name: spec for name, spec in queue.specs.items() if name not in lacking})
        life.types = queue.types
        if self.scene.tenants:
            life.scheduler = SimulatedScheduler(self)
            queue = replace(queue, scheduler=Guarded(life.scheduler))
        setup = Setup(
            store, [queue], life.hands, self.app.events, self.clock.steady,
            concurrency=4, lease=LEASE, poll=5.0, chance=chance,
            run_spawned=lambda work: self.throttler.aside(life, work),
        )  # fmt: skip
        if isinstance(life.hands, DaemonExecutor):
            setup.spare = life.hands.spare
        life.engine = Engine(setup)
        self.trace(life, "starts")
        return life

    def _withdraw(self) -> None:
        """From now on the code has no throttler; engines that run go on with what they have."""
        self.trace(None, "the throttler is taken out of the code")
        self.queue.throttler = None
        self.queue.declared = replace(self.queue.declared, throttled=False)

    def _redeploy(self) -> None:
        """Replace the engines that run code of before."""
        for index, life in enumerate(self._lives):
            if life and (life.throttler, life.crons) != (self.queue.throttler, len(self.queue._crons)):
                self._die(index)

    # -- the verdict ------------------------------------------------------------------------------------------------
    def _check_reclaimed_soon(self) -> None:
        """I13: with the faults over, a lease and two sweeps after the last crash nothing is left in dead hands."""
        self._last_death = self.clock.steady()
        limit = self._last_death + int(QUIET * SECOND)
        while self.clock.steady() < (until := self._last_death + round((LEASE + 2 * LEASE / 3 + 25) * SECOND)):
            if self.clock.steady() >= limit:
                raise audit.Broken("I13: some job takes one engine after another with it")
            self._step(until)
        dead = self.store.owned([self.queue.number], None, 100)
        if dead:
            raise audit.Broken(f"I13: {len(dead)} jobs still belong to dead engines, e.g. {dead[0]}")

    def _all_final(self) -> bool:
        if self._plans:
            return False
        with self.store._db.reading() as conn:  # type: ignore[attr-defined]
            return not conn.execute(f"SELECT 1 FROM {self._table} LIMIT 1").fetchall()

    def _check(self) -> None:
        with self.store._db.reading() as conn:  # type: ignore[attr-defined]
            audit.check_leases(conn)
            writes = audit.trail(conn)
        jobs = [write for write in writes if write.table in ("live", "final")]
        rows = audit.check_writes(jobs, self.jobs.started)
        answers = Answers(self.tended, self.jobs, self.outside, self.clients.set_back)
        settled = answers.check(writes)
        self.kept, self.phases = self.app.answers.list("jobs", limit=10_000), answers.phases
        audit.check_endings(jobs, settled)
        starts = Starts(
            self.scene,
            self.throttler.admitted,
            Order(self.scene, self.codes, self.met),
            self.clients.stepped,
            self._quiet,
        )
        starts.check(writes, self._failed_ticks, self._cleared)
        assert all(queue_of(job_id) == self.queue.number for job_id in rows)
        clients = self.clients
        audit.check_end(rows, clients.acknowledged, clients.submitted, self.jobs.executed, clients.poison, settled)
        assert len(self.store.ended(list(rows))) == len(rows)
        activity.check(self.store, self.queue.number, jobs)

    def trace(self, life: Life | None, what: str) -> None:
        who = f"engine {life.engine.engine_id}" if life else "client"
        line = f"{(self.clock.steady() - self._start) / SECOND:10.3f} {who:10} {what}"
        self.steps.append(line)
        if self._print:
            print(line)

    def close(self) -> None:
        self.store.close()


QUIET_MICROS = int(QUIET * SECOND) * 100


def simulate(seed: int, *, trace: bool = False) -> World:
    """One run; on a broken invariant (or any other error) the message names the seed and the last steps."""
    world = World(seed, trace=trace)
    try:
        world.run()
    except Exception as error:
        steps = "\n".join(world.steps[-15:])
        raise audit.Broken(f"seed {seed}: {type(error).__name__}: {error}\nlast steps:\n{steps}") from error
    finally:
        world.close()
    return world
