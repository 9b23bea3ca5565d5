"""What may start and when (RELIABILITY I9, I10; pauses, throttlers), checked over the trail of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipq.job.states import EXECUTING, RUNNING
from hipq.job.units import counted
from hipq.job.when import SECOND
from hipq.limits.rate import Rate
from hipq.limits.rules import NO_RULES, load
from tests.simulation.audit import Write, require
from tests.simulation.order import Order
from tests.simulation.patience import Patience
from tests.simulation.pools import pools
from tests.simulation.scene import URGENT, Scene
from tests.simulation.ticks import Ticks
from tests.simulation.windows import is_open


class Starts:
    """Goes through the trail once, and knows at every start what was in force and what was held."""

    def __init__(
        self,
        scene: Scene,
        admitted: Mapping[int, set[int]],
        order: Order,
        stepped: bool,
        quiet: int,
    ) -> None:
        self._scene = scene
        self._order = order
        self._ticks = Ticks(scene, stepped)
        self._patience = Patience(scene, quiet)
        self._admitted = admitted
        self._stepped = stepped
        """Somebody set the calendar: what was counted by it cannot be checked."""
        self._rules = NO_RULES
        self._rows: dict[int, dict[str, Any]] = {}
        self._held: dict[int, tuple[str, int]] = {}
        self._running: set[int] = set()
        self._light: set[int] = set()
        """Those whose answer came while they were to be tried again."""
        self._begun: dict[Rate, list[tuple[int, int]]] = {}
        """Under each rate that is in force: when jobs started, and their units."""
        self._handed_in: dict[int, int] = {}
        """By call, the ticket that was handed in while it was good."""

    def check(self, writes: list[Write], failed_ticks: int, cleared: int) -> None:
        """`cleared`: when the schedule was taken away."""
        for write in writes:
            self._patience.before(write)
            self._order.before(write, self._rows, self._held.values(), self._rules)
            if write.table == "live":
                self._moved(write)
            elif write.table == "rules":
                self._rules = load(write.new["rules"])
                rates = [one for one in self._rules.in_force if isinstance(one, Rate)]
                self._begun = {one: self._begun.get(one, []) for one in rates}
            elif write.table == "ticket":
                self._ticket(write)
            elif write.table == "cron":
                self._ticks.moved(write, self._rows.values())
            if write.table in ("live", "rules"):
                self._patience.after(write, self._rows.values(), self._rules, self._fits)
        self._order.close(self._rows, self._held.values(), self._rules)
        self._ticks.check_end(failed_ticks, cleared)

    def _moved(self, write: Write) -> None:
        old, new = write.old, write.new
        if write.verb == "INSERT" and new["job_key"].startswith("cron:"):
            self._ticks.added(write)
        if write.verb == "UPDATE" and new["phase"] == EXECUTING and old["phase"] != EXECUTING:
            self._started(write, new)
        self._held.pop(write.id, None)
        self._running.discard(write.id)
        self._rows.pop(write.id, None)
        if write.verb != "DELETE":
            self._rows[write.id] = new
            running = new["state"] == RUNNING
            self._unweighed(write, running)
            counts = running and new["job_type"] != URGENT and write.id not in self._light
            due = new["throttle_factor"] if counts else 0
            require(new["held"] == due, "I9", f"job {write.id} holds {new['held']} units, not {due}", write)
            if due:
                self._held[write.id] = (new["lane"], due)
            if running and write.id not in self._light and new["job_type"] != URGENT:
                self._running.add(write.id)

    def _unweighed(self, write: Write, running: bool) -> None:
        """What a job had of the limits is gone once it is to be tried again; an answer that comes then does not ask for
        it back, since others may have it."""
        if not running or write.new["phase"] == EXECUTING:
            self._light.discard(write.id)
        elif write.old and write.old["state"] != RUNNING:
            self._light.add(write.id)

    # -- a start ----------------------------------------------------------------------------------------------------
    def _started(self, write: Write, row: dict[str, Any]) -> None:
        self._order.started(row)
        rules, lane, at = self._rules, row["lane"], row["update_time"]
        require(is_open(row["time_windows"], at), "I10", f"job {write.id} started outside its window", write)
        require(not rules.paused, "pause", f"job {write.id} started in a paused queue", write)
        require(lane not in rules.paused_lanes, "pause", f"job {write.id} started in a paused lane", write)
        require(row["job_type"] not in rules.paused_types, "pause", f"job {write.id} is of a paused type", write)
        if rules.throttled and row["job_type"] != URGENT:
            ticket = self._handed_in.get(write.call, 0)
            require(ticket > 0, "throttler", f"job {write.id} started without a ticket", write)
            leave = write.id in self._admitted.get(ticket, ())
            require(leave, "throttler", f"job {write.id} started without its leave", write)
            room = len(self._running) < self._scene.most_running
            require(room, "throttler", f"job {write.id} started though {len(self._running)} ran", write)
        if row["job_type"] != URGENT:
            all_pools = pools(rules, self._held.values(), lane)
            full = [f"{pool.name}: {pool.used} units" for pool in all_pools if not pool.fits(row)]
            require(not full, "I9", f"job {write.id} started on top of {', '.join(full)}", write)
            for rate, begun in self._begun.items():
                begun.append((write.now, row["throttle_factor"]))
                if not self._stepped:
                    self._check_rate(rate, begun, write)

    def _fits(self, row: dict[str, Any]) -> bool:
        return all(pool.fits(row) for pool in pools(self._rules, self._held.values(), row["lane"]))

    def _check_rate(self, rate: Rate, begun: list[tuple[int, int]], write: Write) -> None:
        """The span that ends here has not too much; one job that is too heavy for any span may have its own."""
        first = begun[-1][0] - round(rate.per * SECOND)
        inside = [units for at, units in begun if at > first]
        fits = sum(inside) <= counted(rate.n) or len(inside) == 1
        require(fits, "I9", f"{rate}: {sum(inside)} units started after {first}", write)

    # -- tickets ----------------------------------------------------------------------------------------------------
    def _ticket(self, write: Write) -> None:
        old, new = write.old, write.new
        alive = old["engine_id"] != 0 and old["until"] > write.steady
        if new["number"] != old["number"]:
            taken = alive and write.lease > write.steady and old["engine_id"] != new["engine_id"]
            require(not taken, "throttler", "a ticket was taken from an engine that lives", write)
            require(new["engine_id"] == write.actor, "throttler", "a ticket was taken for another", write)
            self._patience.asked(write)
        elif alive and old["engine_id"] == write.actor and new["engine_id"] == 0:
            self._handed_in[write.call] = new["number"]
