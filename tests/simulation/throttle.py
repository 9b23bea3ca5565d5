"""A code throttler in simulated time: it admits so many, defers some, rejects a few, and is at times slow or wrong."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hipq.job.view import Job
from hipq.job.when import SECOND
from hipq.limits.code import Decision, admit, defer, reject
from tests.simulation.scene import URGENT

if TYPE_CHECKING:
    from tests.simulation.life import Life
    from tests.simulation.world import World


class SimulatedThrottler:
    def __init__(self, world: World) -> None:
        self._world = world
        self._ticket = 0
        self.admitted: dict[int, set[int]] = defaultdict(set)
        """By ticket, the ids it admitted, where its answer could be read to the end."""

    def __call__(self, due: list[Job[Any]], running: list[Job[Any]], _now: datetime) -> Iterator[Decision]:
        scene, chance = self._world.scene, self._world.chance
        wrong = chance.choices(["", "raises", "decides twice"], [85, 10, 5])[0] if self._world.faulty else ""
        free = scene.most_running - sum(job.type != URGENT for job in running)
        found: set[int] = set()
        for job in due:
            marker = job.data["marker"]
            if random.Random(f"{self._world.seed}/{marker}").random() < scene.rejects:
                yield reject(job, "simulated")
            elif self._world.faulty and chance.random() < 0.1:
                yield defer(job, chance.uniform(0, 8))
            elif free > 0:
                free -= 1
                found.add(job.id)
                yield admit(job)
                if wrong == "decides twice":
                    yield reject(job, "simulated")
        if wrong == "raises":
            raise SystemExit("simulated")
        self.admitted[self._ticket] |= found

    def aside(self, life: Life, work: Callable[[], None]) -> None:
        """Its own thread: the answer is there after a while, unless the process ends before."""
        world, ticket = self._world, life.ticket

        def consult() -> None:
            world.trace(life, f"the throttler is asked (ticket {ticket})")
            if world.faulty and world.chance.random() < 0.1:
                world.clients.change_rules()  # while it was thinking
            self._ticket = ticket
            work()

        wait = world.chance.uniform(0.001, 0.5 if world.faulty else 0.02)
        if world.faulty and world.chance.random() < world.scene.slow:
            wait = world.chance.choice([1.0, 15.0, 70.0]) * world.chance.uniform(0.5, 1.0)
        life.asides.append((world.clock.steady() + round(wait * SECOND), consult))
