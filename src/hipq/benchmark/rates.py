"""Measurements of throughput. Each runs a number of jobs and returns the seconds they took; the size of a round
follows the speed."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from hipq.benchmark.workbench import ADDING, ANSWERING, DRAINING, Workbench
from hipq.errors import HipqError
from hipq.job.answer import MATCHED

PAYLOAD: Final = {"amount": 5, "currency": "EUR", "reference": "order-000017", "note": "x" * 40}
TOGETHER: Final = 64
AT_ONCE: Final = 100
"""Answers in one call of answer_many."""
MOST: Final = 5_000
"""Jobs in a round: more would only make the database larger."""
IN_ALL: Final = 30_000
"""Jobs, or answers, that a measurement leaves in the database until the end of the run."""
_FIRST: Final = 50
_ROUNDS: Final = 8
"""The number of rounds a measurement aims for: a median of fewer says little."""

Run = Callable[[Workbench, int], float]


class Measured(NamedTuple):
    rounds: tuple[float, ...]
    """Jobs a second, in each round."""
    jobs: int

    @property
    def rate(self) -> float:
        """The median, which ignores rounds in which the machine did something else."""
        return statistics.median(self.rounds)


def in_rounds(bench: Workbench, run: Run, seconds: float, in_all: int | None = None) -> Measured:
    """Run rounds until the time is over or there are enough. The first one only warms up and finds the size of a
    round."""
    until = time.monotonic() + seconds
    size, rounds, jobs = _FIRST, list[float](), 0
    while len(rounds) < 2 or (time.monotonic() < until and not (in_all and jobs >= in_all)):
        bench.pause()
        began = time.perf_counter()
        rounds.append(size / run(bench, size))
        jobs += size
        whole = time.perf_counter() - began  # including the preparation
        size = min(max(round(size * seconds / _ROUNDS / whole), _FIRST), MOST)
    return Measured(tuple(rounds[1:]), jobs)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# -- adding ----------------------------------------------------------------------------------------------------------
def enqueue(bench: Workbench, size: int) -> float:
    queue = bench.queue(ADDING)
    return _seconds(lambda: [queue.enqueue("work", PAYLOAD) for _ in range(size)])


def aenqueue(bench: Workbench, size: int) -> float:
    work = bench.queue(ADDING).job_types[0]

    async def add() -> None:
        left = iter(range(size))

        async def client() -> None:
            for _ in left:
                await work.aenqueue(PAYLOAD)

        await asyncio.gather(*(client() for _ in range(TOGETHER)))

    return _seconds(lambda: asyncio.run(add()))


def enqueue_many(bench: Workbench, size: int) -> float:
    return _seconds(lambda: bench.queue(ADDING).enqueue_many("work", [PAYLOAD] * size))


# -- draining --------------------------------------------------------------------------------------------------------
def drain(job_type: str, bench: Workbench, size: int) -> float:
    bench.queue(DRAINING).enqueue_many(job_type, [PAYLOAD] * size)
    took = bench.drain(DRAINING)
    bench.check_done(DRAINING, size)
    return took


# -- answers ---------------------------------------------------------------------------------------------------------
def answer(at_once: int, bench: Workbench, size: int) -> float:
    """Measure answers to jobs that end with their answer."""
    keys = _waiting(bench, "ask", size)
    took = _seconds(lambda: _deliver(bench, "ask", keys, at_once))
    bench.check_done(ANSWERING, size)
    return took


def answer_and_look(bench: Workbench, size: int) -> float:
    """Measure answers that a handler looks at, until the last job has ended."""
    keys = _waiting(bench, "ask_and_look", size)
    took = _seconds(lambda: _deliver(bench, "ask_and_look", keys, AT_ONCE)) + bench.drain(ANSWERING)
    bench.check_done(ANSWERING, size)
    return took


def _waiting(bench: Workbench, job_type: str, size: int) -> list[str]:
    """Add jobs that wait, and return their keys."""
    keys = [f"order-{n}" for n in range(size)]
    bench.queue(ANSWERING).enqueue_many(job_type, [PAYLOAD] * size, keys=keys)
    bench.drain(ANSWERING)
    return keys


def _deliver(bench: Workbench, job_type: str, keys: Sequence[str], at_once: int) -> None:
    for some in _chunks(keys, at_once):
        if at_once == 1:
            outcomes = [bench.app.answer(ANSWERING, job_type, some[0], {"status": "paid"})]
        else:
            named: dict[str, Any] = {"queue": ANSWERING, "type": job_type, "data": {"status": "paid"}}
            outcomes = bench.app.answer_many(named | {"key": key} for key in some)
        if set(outcomes) != {MATCHED}:
            raise HipqError(f"the figures would be wrong: an answer to a job that waits was {outcomes}")


def _chunks(keys: Sequence[str], size: int) -> Iterator[list[str]]:
    left = iter(keys)
    while some := list(islice(left, size)):
        yield some


class Throughput(NamedTuple):
    """One line of the table."""

    name: str
    text: str
    group: str
    run: Run
    share: float
    """The share of the run's time."""
    in_all: int | None = None


RATES: Final = (
    Throughput("enqueue", "enqueue, one at a time", "adding", enqueue, 0.11, IN_ALL),
    Throughput("aenqueue", f"aenqueue, {TOGETHER} at the same time", "adding", aenqueue, 0.10, IN_ALL),
    Throughput("enqueue_many", f"enqueue_many, up to {MOST:,} a call", "adding", enqueue_many, 0.06, IN_ALL),
    Throughput("drain", "plain handlers", "running", partial(drain, "work"), 0.12),
    Throughput("drain_async", "async handlers", "running", partial(drain, "awork"), 0.12),
    Throughput("answer", "answer, one at a time", "answering", partial(answer, 1), 0.08, IN_ALL),
    Throughput("answer_many", f"answer_many, {AT_ONCE} at a time", "answering", partial(answer, AT_ONCE), 0.08, IN_ALL),
    Throughput("answer_handler", "the same, looked at by a handler", "answering", answer_and_look, 0.08, IN_ALL),
)
