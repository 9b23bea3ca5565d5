"""Whoever is not an engine: those who add and cancel jobs, the operator who changes rules, the hand on the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq.errors import Conflict, DuplicateKey, Invalid, NotFound, StoreUnavailable
from hipq.job import payload
from hipq.job.when import SECOND
from tests.simulation.audit import Broken
from tests.simulation.daemon import HOG, HOGS, TYPES, of_tenant
from tests.simulation.outside import ASKING, BRIEF
from tests.simulation.scene import ERRAND, URGENT, draw_limits

if TYPE_CHECKING:
    from tests.simulation.world import World


class Clients:
    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = 0
        self.submitted: dict[str, str] = {}
        """Payloads by marker: what anybody ever wanted to add."""
        self.acknowledged: dict[int, str] = {}
        self.poison: set[str] = set()
        self.stepped = False
        self.set_back = 0
        """By how many microseconds the calendar was set back, all in all."""

    def add(self) -> None:
        world, chance = self._world, self._world.chance
        self._numbers += 1
        marker = f"m{self._numbers}"
        data: dict[str, Any] = {"marker": marker, "depth": 0, "tries": 0}
        key = chance.choice([None, marker, f"shared{chance.randrange(4)}"])
        if chance.random() < 0.05:
            self.poison.add(marker)
        delay = chance.choice([0, 0, chance.uniform(0, 30)])
        options: dict[str, Any] = {"key": key, "delay": delay, "priority": chance.randrange(200)}
        job_type = "work"
        if world.scene.ruled:
            data["lane"] = chance.choice(world.scene.lanes)
            options["throttle_factor"] = chance.randint(1, world.scene.heaviest)
            options["windows"] = chance.choice([(), *world.scene.windows])
            job_type = chance.choices(["work", URGENT, ERRAND], [85, 15, 50 if world.scene.lacking else 0])[0]
            if world.scene.fractions:
                options["throttle_factor"] = (10 * options["throttle_factor"] - chance.choice([0, 0, 3, 5, 9])) / 10
            if job_type == ERRAND or (world.scene.light and chance.random() < world.scene.light):
                options["throttle_factor"] = 1
        if world.scene.tenants:
            data["tenant"] = chance.choice(world.scene.tenants)
            job_type = chance.choice(TYPES)
        if world.scene.answers and chance.random() < 0.7:
            job_type = chance.choices(ASKING, [60, 20, 20])[0]
            if chance.random() < 0.4:
                key = options["key"] = f"shared{chance.randrange(2)}"  # one after the other has it
            if world.scene.plain_asks:
                options.pop("throttle_factor", None)
            if chance.random() < 0.15:
                self._hint(job_type, data, options)
                return
        self._add(job_type, data, options)

    def _hint(self, job_type: str, data: dict[str, Any], options: dict[str, Any]) -> None:
        """An answer comes before its job; and sometimes that job ends without it, and another has its key then."""
        world, chance = self._world, self._world.chance
        key = options["key"] = options["key"] or f"hint {data['marker']}"
        world.outside.hint(job_type, key)
        at = world.clock.steady() + round(chance.choice([0.01, 1.0, 5.0, 20.0]) * chance.uniform(0.2, 1.2) * SECOND)
        if chance.random() < 0.5:
            brief = {**data, "marker": data["marker"] + BRIEF}
            world.plan(at, lambda: self._add(job_type, brief, {**options, "delay": 0, "windows": ()}))
            at += round(chance.choice([3, 10, 30]) * SECOND)
        world.plan(at, lambda: self._add(job_type, data, options))

    def _add(self, job_type: str, data: dict[str, Any], options: dict[str, Any]) -> None:
        world, marker = self._world, data["marker"]
        self.submitted[marker] = payload.encode(data)
        try:
            enqueue = self._enqueue_of_tenant if world.scene.tenants else world.queue.enqueue
            job_id = enqueue(job_type, data, **options)
            if job_id in self.acknowledged:
                raise Broken(f"I1: {marker} and {self.acknowledged[job_id]} were both acknowledged as job {job_id}")
            self.acknowledged[job_id] = marker
        except (DuplicateKey, StoreUnavailable):
            pass
        except Invalid:
            if not world.scene.limits and not world.relimited:
                raise  # else it is too heavy for a limit
        world.notify()

    def _enqueue_of_tenant(self, job_type: str, data: dict[str, Any], **options: Any) -> int:
        world = self._world
        new = of_tenant(world.queue.chained(job_type, data, options), data)
        (stored,) = world.app.store.enqueue([new])
        if stored.duplicate:
            raise DuplicateKey(new.job_type, new.job_key, stored.id)
        world.notice(new)
        return stored.id

    def hog(self) -> None:
        """One tenant has more long jobs than there are slots."""
        for number in range(HOGS):
            self._add(HOG, {"marker": f"hog{number}", "depth": 2, "tries": 0, "tenant": "bob"}, {})

    def come_late(self) -> None:
        """Two tenants that have nothing here want one job each."""
        for tenant in ("ada", "cyd"):
            self._add("work", {"marker": f"late {tenant}", "depth": 2, "tries": 0, "tenant": tenant}, {})

    def meddle(self) -> None:
        app, chance = self._world.app, self._world.chance
        if not self.acknowledged:
            return
        job_id = chance.choice(sorted(self.acknowledged))
        priority, delay = chance.randrange(200), chance.choice([0, 0, chance.uniform(0, 30)])
        try:
            if self._world.scene.answers and chance.random() < 0.6:
                phase = chance.choice(["waiting", "waiting", "answered", "cancelling"])
                job_id = next((job.id for job in app.jobs("jobs", phase=phase)), job_id)
            match chance.choice(["cancel", "cancel", "hurry", "hurry", "sooner", "later", "all", "all later"]):
                case "cancel":
                    app.cancel(job_id)
                case "hurry":
                    app.retry_now(job_id)
                case "sooner":
                    app.jobs.change(job_id, priority=priority)
                case "later":
                    app.jobs.change(job_id, delay=delay, priority=priority)
                case "all":
                    app.jobs.retry_all("jobs", type="work")
                case _:
                    app.jobs.change_all("jobs", delay=delay, phase="scheduled")
        except (Conflict, NotFound, StoreUnavailable):
            pass

    def change_rules(self) -> None:
        """An operator pauses, resumes, sets limits; now and then the programs that add jobs do not hear of it."""
        world, chance = self._world, self._world.chance
        app, known = world.app, world.queue._rules
        what = chance.choice(["pause", "pause", "resume", "set_limit", "set_limit", "dry_run"])
        of: dict[str, Any] = chance.choice([{}, {"lane": chance.choice(world.scene.lanes)}, {"type": "work"}])
        to: Any = chance.choice([chance.randrange(1, 11), chance.randrange(2, 8), 0, None, draw_limits(chance)])
        world.trace(None, f"{what} {to if what == 'set_limit' else of}")
        try:
            if what == "set_limit":
                world.relimited = True
                app.rules.set_limit("jobs", to)
            elif what == "dry_run":
                app.dry_run("jobs", lambda _due, _running, _now: ())
            else:
                getattr(app, what)("jobs", **of)
        except (Invalid, StoreUnavailable):
            pass  # Invalid: the limit has shares of less than one unit
        if chance.random() < 0.3:
            world.queue._rules = known
        world.notify()

    def resume_all(self) -> None:
        rules = self._world.store.limits(self._world.queue.number).rules
        self._world.app.resume("jobs")
        for lane in rules.paused_lanes:
            self._world.app.resume("jobs", lane=lane)
        for job_type in rules.paused_types:
            self._world.app.resume("jobs", type=job_type)

    def step_clock(self) -> None:
        """The calendar is set; where windows and schedules go by it, sometimes by minutes."""
        chance = self._world.chance
        seconds = chance.uniform(-20, 20)
        if self._world.scene.ruled and chance.random() < 0.3:
            seconds = chance.choice([1, 1, -1]) * chance.uniform(20, 240)
        self._world.trace(None, f"the calendar is set by {seconds:.1f} s")
        self.stepped = True
        self.set_back += max(round(-seconds * SECOND), 0)
        self._world.clock.step(seconds)
