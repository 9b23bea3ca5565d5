"""Timing, interleaving, and what the machine was doing meanwhile."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from bench.peers import ENVIRONMENTS

Sample = TypeVar("Sample")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for a database. Not in /tmp, which may be in memory."""
    ENVIRONMENTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ENVIRONMENTS) as folder:
        yield Path(folder)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(sides: Mapping[str, Callable[[], Sample | None]], rounds: int) -> dict[str, list[Sample]]:
    """A B C, A B C, ...: what a noisy machine does meanwhile, it does to all. A side that has nothing to say is left
    out from then on, with what it said before."""
    found: dict[str, list[Sample]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name in list(found):
            sample = sides[name]()
            if sample is None:
                del found[name]
            else:
                found[name].append(sample)
    return found


def best(sides: Mapping[str, Callable[[], float | None]], rounds: int) -> dict[str, float]:
    """The highest rate of each side."""
    return {name: max(samples) for name, samples in interleaved(sides, rounds).items()}


def percentile(samples: list[float], part: float) -> float:
    """The smallest that so many percent of all do not exceed."""
    return sorted(samples)[max(math.ceil(part / 100 * len(samples)) - 1, 0)]


def steal() -> tuple[int, int]:
    """Jiffies stolen by the host, and all jiffies, since boot."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return fields[7], sum(fields[:8])


def steal_between(before: tuple[int, int], after: tuple[int, int]) -> float:
    return 100 * (after[0] - before[0]) / max(after[1] - before[1], 1)
