"""What may start and when (RELIABILITY I9, I10; pauses, throttlers, schedules), checked over the trail of a run.

Its sums are its own: of the product it takes only how rules are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hipq.job.states import EXECUTING, RUNNING
from hipq.job.when import SECOND
from hipq.testing.simulation.audit import Write, require
from hipq.testing.simulation.patience import Patience
from hipq.testing.simulation.scene import URGENT, Scene
from hipq.throttlers.limit import Limit, PerLane
from hipq.throttlers.rate import Rate
from hipq.throttlers.rules import NO_RULES, AnyLimit, load
from hipq.throttlers.share import Share

MINUTE = 60 * SECOND


class Starts:
    """Goes through the trail once, and knows at every start what was in force and what was held."""

    def __init__(self, scene: Scene, admitted: Mapping[int, set[int]], stepped: bool, quiet: int) -> None:
        self._scene = scene
        self._patience = Patience(scene, quiet)
        self._admitted = admitted
        self._stepped = stepped
        """Somebody set the calendar: what was counted by it cannot be checked."""
        self._rules = NO_RULES
        self._rows: dict[int, dict[str, Any]] = {}
        self._held: dict[int, tuple[str, int]] = {}
        self._running: set[int] = set()
        self._begun: dict[Rate, list[tuple[int, int]]] = {}
        """Under each rate that is in force: when jobs started, and their units."""
        self._handed_in: dict[int, int] = {}
        """By call, the ticket that was handed in while it was good."""
        self._ticked: tuple[int, int, int] = (0, 0, 0)
        """The call of the last tick, the one before it and itself."""
        self._ticks: list[int] = []
        self._again = False
        """Some came again, and found their first jobs still there perhaps."""

    def check(self, writes: list[Write], failed_ticks: int) -> None:
        for write in writes:
            self._patience.before(write)
            if write.table == "live":
                self._moved(write)
            elif write.table == "rules":
                self._rules = load(write.new["rules"])
                rates = [one for one in self._rules.in_force if isinstance(one, Rate)]
                self._begun = {one: self._begun.get(one, []) for one in rates}
            elif write.table == "ticket":
                self._ticket(write)
            elif write.table == "cron":
                self._tick(write)
            if write.table in ("live", "rules"):
                self._patience.after(write, self._rows.values(), self._rules, self._fits)
        if self._scene.missed == "all" and not failed_ticks and not self._again:
            gaps = [one for one, two in zip(self._ticks, self._ticks[1:], strict=False) if two - one != MINUTE]
            require(not gaps, "cron", f"a tick after {gaps} was left out")

    def _moved(self, write: Write) -> None:
        old, new = write.old, write.new
        if write.verb == "INSERT" and new["job_key"].startswith("cron:"):
            self._added_by_tick(write)
        if write.verb == "UPDATE" and new["phase"] == EXECUTING and old["phase"] != EXECUTING:
            self._started(write, new)
        self._held.pop(write.id, None)
        self._running.discard(write.id)
        self._rows.pop(write.id, None)
        if write.verb != "DELETE":
            self._rows[write.id] = new
            running = new["state"] == RUNNING
            due = new["throttle_factor"] if running and new["job_type"] != URGENT else 0
            require(new["held"] == due, "I9", f"job {write.id} holds {new['held']} units, not {due}", write)
            if due:
                self._held[write.id] = (new["lane"], due)
            if running:
                self._running.add(write.id)

    # -- a start ----------------------------------------------------------------------------------------------------
    def _started(self, write: Write, row: dict[str, Any]) -> None:
        rules, lane, at = self._rules, row["lane"], row["update_time"]
        require(is_open(row["time_windows"], at), "I10", f"job {write.id} started outside its window", write)
        require(not rules.paused, "pause", f"job {write.id} started in a paused queue", write)
        require(lane not in rules.paused_lanes, "pause", f"job {write.id} started in a paused lane", write)
        require(row["job_type"] not in rules.paused_types, "pause", f"job {write.id} is of a paused type", write)
        if rules.throttled:
            ticket = self._handed_in.get(write.call, 0)
            require(ticket > 0, "throttler", f"job {write.id} started without a ticket", write)
            leave = write.id in self._admitted.get(ticket, ())
            require(leave, "throttler", f"job {write.id} started without its leave", write)
            room = len(self._running) < self._scene.most_running
            require(room, "throttler", f"job {write.id} started though {len(self._running)} ran", write)
        if row["job_type"] != URGENT:
            full = [f"{name}: {used} units" for name, cap, used in self._pools(lane) if not _fits(row, cap, used)]
            require(not full, "I9", f"job {write.id} started on top of {', '.join(full)}", write)
            for rate, begun in self._begun.items():
                begun.append((write.now, row["throttle_factor"]))
                if not self._stepped:
                    self._check_rate(rate, begun, write)

    def _fits(self, row: dict[str, Any]) -> bool:
        return all(_fits(row, cap, used) for _, cap, used in self._pools(row["lane"]))

    def _pools(self, lane: str) -> Iterator[tuple[str, int, int]]:
        """The limits a job of this lane counts in: how much each allows, and how much of it is held."""
        limits: tuple[AnyLimit, ...] = self._rules.in_force
        whole = next((one.n for one in limits if isinstance(one, Limit)), 0)
        for one in limits:
            if isinstance(one, Limit):
                yield str(one), one.n, sum(units for _, units in self._held.values())
            elif isinstance(one, PerLane):
                yield str(one), one.n, sum(units for where, units in self._held.values() if where == lane)
            elif isinstance(one, Share) and whole:
                listed = lane in one.percent
                percent = one.percent[lane] if listed else one.other
                sharing = [
                    units for where, units in self._held.values()
                    if (where == lane if listed else where not in one.percent)
                ]  # fmt: skip
                yield str(one), whole * percent // 100, sum(sharing)

    def _check_rate(self, rate: Rate, begun: list[tuple[int, int]], write: Write) -> None:
        """The span that ends here has not too much; one job that is too heavy for any span may have its own."""
        first = begun[-1][0] - round(rate.per * SECOND)
        inside = [units for at, units in begun if at > first]
        fits = sum(inside) <= rate.n or len(inside) == 1
        require(fits, "I9", f"{rate}: {sum(inside)} units started after {first}", write)

    # -- tickets and ticks ------------------------------------------------------------------------------------------
    def _ticket(self, write: Write) -> None:
        old, new = write.old, write.new
        alive = old["sysid"] != 0 and old["until"] > write.steady
        if new["number"] != old["number"]:
            taken = alive and write.lease > write.steady and old["sysid"] != new["sysid"]
            require(not taken, "throttler", "a ticket was taken from an engine that lives", write)
            require(new["sysid"] == write.actor, "throttler", "a ticket was taken for another", write)
            self._patience.asked(write)
        elif alive and old["sysid"] == write.actor and new["sysid"] == 0:
            self._handed_in[write.call] = new["number"]

    def _tick(self, write: Write) -> None:
        require(write.verb != "DELETE", "cron", "a schedule was forgotten", write)
        if write.verb == "UPDATE":
            before, tick = write.old["last"], write.new["last"]
            if before > write.now + MINUTE:  # the calendar was set back: the same ticks come again
                self._ticks = [one for one in self._ticks if one <= tick]
                self._again = True
                return
            require(tick > before, "cron", f"tick {tick} came after {before}", write)
            require(tick % MINUTE == 0, "cron", f"{tick} is no tick", write)
            require(tick <= write.now or self._stepped, "cron", f"tick {tick} came early", write)
            self._ticked = (write.call, before, tick)

    def _added_by_tick(self, write: Write) -> None:
        call, before, last = self._ticked
        tick = write.new["scheduled_run_time"]
        require(call == write.call and before < tick <= last, "cron", f"a job came without its tick {tick}", write)
        require(tick not in self._ticks, "cron", f"tick {tick} came twice", write)
        self._ticks.append(tick)


def _fits(row: dict[str, Any], cap: int, used: int) -> bool:
    """A job that is heavier than all there is runs alone."""
    factor = int(row["throttle_factor"])
    return used + factor <= cap or (factor > cap and used == 0)


def is_open(windows: str, at: int) -> bool:
    """Whether a moment is in one of some windows (in UTC, on all days: there are no others here)."""
    minute = at // MINUTE % 1_440
    spans = [(_minute(one["start"]), _minute(one["end"])) for one in json.loads(windows)]
    inside = [opens <= minute < closes if opens < closes else not closes <= minute < opens for opens, closes in spans]
    return any(inside) or not spans


def _minute(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])
