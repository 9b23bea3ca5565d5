"""Several engines over the real SQLite store, with a simulated clock, scheduler and faults, all drawn from one seed.

    python -m tests.simulation --runs 1000          # 1,000 different lives
    python -m tests.simulation --seed 4711 --trace  # one of them again, step by step

A run that breaks an invariant of hipq raises `Broken`, which names the seed; the same seed replays the same run.
"""

from tests.simulation.audit import Broken
from tests.simulation.world import World, simulate

__all__ = ["Broken", "World", "simulate"]
