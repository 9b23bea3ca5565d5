"""What simulated handlers do, how long they take, and which of them kill."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hipq.engine.launch import Running
from hipq.job import payload
from hipq.job.model import Row
from hipq.job.outcome import Failed, Ok, Retry, Wait
from hipq.job.view import Job
from hipq.job.when import SECOND
from hipq.testing.simulation.audit import Broken
from hipq.testing.simulation.windows import is_open

if TYPE_CHECKING:
    from hipq.testing.simulation.world import World


class Jobs:
    def __init__(self, world: World) -> None:
        self._world = world
        self.executed: list[tuple[int, str, str]] = []
        """Id, marker and payload of every run that came to its end."""
        self.started: set[tuple[int, int]] = set()
        """Id and token of every run that began."""

    def handler(self, job: Job[Any]) -> Any:
        marker = job.data["marker"]
        self.executed.append((job.id, marker, payload.encode(job.data)))
        draw = random.Random(f"{self._world.seed}/{marker}/{job.attempt}")
        kind = draw.choices(
            ["ok", "error", "failed", "again", "wait", "chain"], [50, 15, 5, 10, 10, 10 if job.data["depth"] < 2 else 0]
        )[0]
        if kind == "error":
            raise ValueError("simulated")
        if kind == "failed":
            return Failed("simulated")
        if kind == "again" and job.attempt < 20:
            return Retry(draw.uniform(0, 5))
        if kind == "wait":
            return Wait(timeout=draw.uniform(1, 30))
        if kind == "chain":
            name = f"{marker}/{job.attempt}.{len(self.executed)}"
            child = {**job.data, "marker": name, "depth": job.data["depth"] + 1}
            self._world.clients.submitted[name] = payload.encode(child)
            job.enqueue("work", child)
        return Ok(marker)

    def begins(self, running: Running) -> None:
        """A handler, or a retry handler, begins."""
        row = running.row
        self.started.add((row.id, row.token))
        if not running.judges and not is_open(row.time_windows, self._world.clock.now()):
            raise Broken(f"I10: job {row.id} began outside its window")

    def duration(self, row: Row) -> int:
        if self.is_poison(row):
            return SECOND // 10  # it crashes before its time-out can strike
        draw = random.Random(f"{self._world.seed}/{row.id}/{row.attempt}/{row.token}")
        return round(draw.choice([0.001, 0.1, 2.0, 8.0, 25.0]) * draw.uniform(0.5, 1.5) * SECOND)

    def is_poison(self, row: Row) -> bool:
        return payload.decode(row.job_data)["marker"] in self._world.clients.poison
