"""In what order jobs start (RELIABILITY I11), checked call by call.

A claim passes over nothing that fits, unless a heavy job may have to go first; and no more than a pool's worth of units
passes a heavy job that does not fit that pool, for each heavy job that goes before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from hipq.job.states import ANSWERED, CANCELLING, READY
from hipq.job.units import UNIT
from hipq.job.when import SECOND
from hipq.limits.limit import Limit
from hipq.limits.rules import Rules
from tests.simulation.audit import Write, require
from tests.simulation.pools import Pool, pools
from tests.simulation.scene import URGENT, Scene
from tests.simulation.windows import is_open

Row = dict[str, Any]
Held = Collection[tuple[str, int]]
UNMET = 7 * SECOND
"""Engines without the code of a heavy job wait for it as long as one with it comes by more often than that."""


class _Waiting(NamedTuple):
    """A heavy job, since it could start but for its weight."""

    row: Row
    passed: Counter[str]
    """By pool, the units that passed it while it did not fit there,"""
    gone: Counter[str]
    """and the heavy jobs that were there too and are not any more: with each of them counting begins anew."""
    met: set[str]
    """The pools in which an engine that has its code found it waiting: the others can know of it from then on."""


class Order:
    def __init__(self, scene: Scene, codes: Mapping[int, Collection[str]], met: Sequence[int]) -> None:
        self._scene = scene
        self._codes = codes
        """By engine, the job types it has code for."""
        self._met = met
        """When engines with the code of heavy jobs found some that had to wait."""
        self._call = (0, 0)
        self._started: list[Row] = []
        self._heavy: dict[tuple[int, int], _Waiting] = {}
        """By id and token."""
        self._now = self._steady = self._offset = self._looked = 0

    def before(self, write: Write, rows: Mapping[int, Row], held: Held, rules: Rules) -> None:
        """If another call begins, look at what the last one did."""
        call, offset = (write.call, write.actor), write.now - write.steady
        if call != self._call:
            self.close(rows, held, rules)
            self._call = call
        if write.table == "rules" or offset != self._offset:  # or the calendar was set
            self._heavy.clear()
            self._offset = offset
        self._now, self._steady = write.now, write.steady

    def started(self, row: Row) -> None:
        self._started.append(row)

    def close(self, rows: Mapping[int, Row], held: Held, rules: Rules) -> None:
        started, self._started = sorted(self._started, key=_place), []
        if rules.throttled or rules.paused:
            return
        at = started[0]["update_time"] if started else self._now  # the turn's own time
        ready = [row for row in rows.values() if _able(row, rules, at)]
        answered = [row for row in rows.values() if row["phase"] in (ANSWERED, CANCELLING) and not row["owner"]]
        self._check_passed_over(started, ready, answered, held, rules)
        if self._is_bounded(rules):
            self._note(ready, rules)
            self._check_bound(started, held, rules)

    def _is_bounded(self, rules: Rules) -> bool:
        """Where some engines lack code the bound is sure for one limit only: of several, the others may not know yet
        which it is that a job does not fit. Nor is it sure where jobs of less than a unit pass those of one: each of
        those that goes before a heavy job makes it wait anew, too."""
        if self._scene.fractions:
            return False
        if self._scene.lacking and (self._scene.windows or not all(isinstance(one, Limit) for one in rules.in_force)):
            return False
        return rules.lanes == "ordered" and not rules.has_rate

    def _check_passed_over(
        self, started: list[Row], ready: list[Row], answered: list[Row], held: Held, rules: Rules
    ) -> None:
        codes = self._codes[self._call[1]] if started else ()
        left = [row["id"] for row in answered if row["job_type"] in codes]
        require(not left, "I11", f"jobs started though {left} have their answers to look at", self._call)
        heavy = [row for row in ready if _is_heavy(row) or (self._scene.fractions and row["job_type"] != URGENT)]
        fair = rules.lanes == "fair" or bool(self._scene.tenants)  # a scheduler says which lane is next
        for row in ready:
            behind = [one for one in started if _place(one) > _place(row) and (not fair or one["lane"] == row["lane"])]
            if not behind or row["job_type"] not in codes:
                continue
            if row["job_type"] != URGENT:
                if any(fair or _place(one) < _place(row) for one in heavy if one is not row):
                    continue  # it may have to let that one go first
                if rules.has_rate and not any(_is_as_heavy(one, row) for one in behind):
                    continue  # a rate may have refused it
                if not all(pool.fits(row) for pool in pools(rules, held, row["lane"])):
                    continue
            ids = [one["id"] for one in behind]
            require(False, "I11", f"jobs {ids} started though job {row['id']} came first", self._call)

    def _note(self, ready: list[Row], rules: Rules) -> None:
        """Who waits now. Whoever does no more makes others wait anew."""
        heavy = {(row["id"], row["token"]): row for row in ready if _is_heavy(row)}
        if self._scene.lacking and (self._was_unmet() or self._heavy.keys() - heavy.keys()):
            self._heavy.clear()
        for key in self._heavy.keys() - heavy.keys():
            left = self._heavy.pop(key).row
            for pool in pools(rules, (), left["lane"]):
                for one in self._heavy.values():
                    one.gone[pool.name] += 1
        for key in sorted(heavy.keys() - self._heavy.keys()):
            self._heavy[key] = _Waiting(heavy[key], Counter(), Counter(), set())

    def _was_unmet(self) -> bool:
        """Since the last look there was a while in which nobody who can start heavy jobs came by."""
        first, last = (bisect_right(self._met, at) for at in (self._looked, self._steady))
        times = [*self._met[max(first - 1, 0) : last], self._steady]
        self._looked = self._steady
        return first == 0 or any(after - before > UNMET for before, after in pairwise(times))

    def _check_bound(self, started: list[Row], held: Held, rules: Rules) -> None:
        """Those that started behind each heavy job passed it: in the first pool that it did not fit at its turn."""
        counted = [row for row in started if row["job_type"] != URGENT]
        for waiting in self._heavy.values():
            place = _place(waiting.row)
            behind = [row for row in counted if _place(row) > place]
            full = _refusing(waiting.row, behind, held, rules)
            if full is None:
                continue
            names = [{pool.name for pool in pools(rules, (), row["lane"])} for row in behind]
            units = sum(row["throttle_factor"] for row, name in zip(behind, names, strict=True) if full.name in name)
            if units and waiting.row["job_type"] in self._codes[self._call[1]]:
                waiting.met.add(full.name)
            if full.name not in waiting.met:
                continue
            waiting.passed[full.name] += units
            most = full.cap * (1 + waiting.gone[full.name])
            passed = waiting.passed[full.name]
            require(
                passed <= most, "I11", f"{passed} units passed job {place[1]} ({full.name}, {full.cap})", self._call
            )


def _refusing(row: Row, behind: list[Row], held: Held, rules: Rules) -> Pool | None:
    """The first pool a job did not fit, before those behind it started."""
    before = [*held, *((one["lane"], -one["throttle_factor"]) for one in behind)]
    return next((pool for pool in pools(rules, before, row["lane"]) if not pool.fits(row)), None)


def _place(row: Row) -> tuple[str, int]:
    return row["rank"], row["id"]


def _is_heavy(row: Row) -> bool:
    return bool(row["throttle_factor"] > UNIT and row["job_type"] != URGENT)


def _is_as_heavy(one: Row, row: Row) -> bool:
    return bool(one["job_type"] != URGENT and one["throttle_factor"] >= row["throttle_factor"])


def _able(row: Row, rules: Rules, at: int) -> bool:
    paused = row["lane"] in rules.paused_lanes or row["job_type"] in rules.paused_types
    due = row["phase"] == READY and row["scheduled_run_time"] <= at
    return due and not paused and is_open(row["time_windows"], at)
