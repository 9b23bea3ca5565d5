"""What nobody keeps from starting starts soon, and nobody asks over and over what cannot have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hipq.job.states import PARKED, READY
from hipq.job.units import UNIT
from hipq.job.when import SECOND
from hipq.limits.rate import Rate
from hipq.limits.rules import Rules
from tests.simulation.audit import Write, require
from tests.simulation.scene import URGENT, Scene

LONGEST_WAIT = 40 * SECOND
"""More than it takes a crashed engine to be replaced and to look for work."""
HANDS = 4
"""Of an engine: while fewer jobs than that are in anybody's hands, each engine has one free."""
ASKS = 30
"""Questions to a throttler, and a few a second, that are not too many while no job moves."""


class Patience:
    """Looks at what happens once the faults are over and what they left behind is cleared up."""

    def __init__(self, scene: Scene, quiet: int) -> None:
        self._scene = scene
        self._quiet = quiet
        self._begin = quiet + (100 if scene.most_running else 50) * SECOND
        self._waits: dict[int, int] = {}
        """Since when each job waits that could start."""
        self._asked = self._moved = 0

    def before(self, write: Write) -> None:
        late = [job_id for job_id, since in self._waits.items() if write.steady - since > LONGEST_WAIT]
        require(not late, "I13", f"jobs {late} could start, and did not for {LONGEST_WAIT // SECOND} s", write)

    def after(self, write: Write, rows: Iterable[dict[str, Any]], rules: Rules, fits: Callable[..., bool]) -> None:
        self._asked, self._moved = 0, write.steady
        if write.steady < self._begin:
            return
        able = set(self._able(list(rows), rules, fits, write.now))
        self._waits = {job_id: self._waits.get(job_id, write.steady) for job_id in able}

    def asked(self, write: Write) -> None:
        if self._moved >= self._quiet and self._scene.page >= 500:
            self._asked += 1
            most = ASKS + 12 * (write.steady - self._moved) // SECOND
            require(self._asked <= most, "throttler", f"it was asked {self._asked} times, and no job had moved", write)

    def _able(self, rows: list[dict[str, Any]], rules: Rules, fits: Callable[..., bool], now: int) -> Iterable[int]:
        """Who could start. Where some are heavy, the first in order only: others may have to let it go first."""
        if rules.paused or any(isinstance(one, Rate) for one in rules.in_force):
            return
        has_slots = sum(row["owner"] != 0 for row in rows) < HANDS
        if not has_slots and not self._scene.tenants:
            return
        holding = {row["tenant"] for row in rows if row["owner"] != 0}
        if rules.throttled and sum(row["state"] == "running" for row in rows) >= self._scene.most_running:
            return
        waiting = [row for row in rows if row["phase"] in (READY, PARKED) and row["scheduled_run_time"] <= now]
        waiting.sort(key=lambda row: (row["rank"], row["id"]))
        heavy = any(row["throttle_factor"] != UNIT for row in rows)
        for row in waiting[:1] if heavy or rules.throttled else waiting:
            paused = row["lane"] in rules.paused_lanes or row["job_type"] in rules.paused_types
            if not has_slots and row["tenant"] in holding:
                continue  # spare slots are for tenants that have none
            if row["time_windows"] == "[]" and not paused and (row["job_type"] == URGENT or fits(row)):
                yield row["id"]
