"""What a line of the target table is, and the database it is measured on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench.measure import seconds
from bench.peers import MARIADB, POSTGRES, SQLITE
from bench.peers.company import Company
from hipq import Hipq, Job, Queue
from hipq.engine.loop import Engine

PAYLOAD = {"amount": 5, "currency": "EUR", "reference": "order-000017", "note": "x" * 40}
TEXT = '{"amount":5,"currency":"EUR","reference":"order-000017","note":"' + "x" * 40 + '"}'
ROUNDS = 3
RATE = "jobs/s"
PLAIN_SQL, THE_LIMIT = "plain SQL", "the limit"


class Broken(Exception):
    """A measurement that means nothing: jobs are left, or rows are missing."""


class Line(NamedTuple):
    """A figure of hipq's beside another, and the ratio it is to have: of a rate at least, of anything else at most."""

    name: str
    hipq: float
    raw: float
    """The other's figure: of plain SQL, of a peer, of hipq without the load, or a limit in the same unit."""
    target: float
    """0: none, the line is there to be read."""
    unit: str = RATE
    against: str = PLAIN_SQL
    verb: str = ""
    """What peers do as well: the tables and the picture of the report are made by it."""

    @property
    def ratio(self) -> float:
        return self.hipq / self.raw if self.raw else math.inf

    @property
    def met(self) -> bool:
        return self.ratio >= self.target if self.unit == RATE else self.ratio <= self.target

    @property
    def verdict(self) -> str:
        return "" if not self.target else "ok" if self.met else "MISSED"

    @property
    def wanted(self) -> str:
        return f"{'>=' if self.unit == RATE else '<='} {self.target:.2f}" if self.target else ""

    def __str__(self) -> str:
        return (
            f"{self.name:66} {figure(self.hipq):>9} {figure(self.raw):>9} {self.unit:9} {self.against:22}"
            f" {self.ratio:7.2f}  {self.wanted:8}  {self.verdict}"
        ).rstrip()


HEADING = f"{'':66} {'hipq':>9} {'other':>9} {'':9} {'against':22} {'ratio':>7}  target"


def figure(value: float) -> str:
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


class Targets(NamedTuple):
    """One store's column of the target table; against plain SQL of the same shape, unless another is named."""

    one: float
    """Jobs added one at a time."""
    concurrently: float
    """64 at once, against one at a time."""
    bulk: float
    drain: float
    limited: float
    """A drain under a limit, with weights."""
    lanes: float
    """A drain over many lanes with a limit each."""
    answered: float
    """Request, answer, settle."""
    answers: float
    """Answers brought to jobs that wait."""
    peer: str
    """The peer named in the table, and hipq against it."""
    peer_one: float
    peer_bulk: float
    peer_drain: float
    peer_latency: float
    latency: dict[int, float]
    """Milliseconds at most, by percentile."""


TARGETS = {
    SQLITE: Targets(
        one=0.85, concurrently=8, bulk=0.9, drain=0.6, limited=0.8, lanes=0.6, answered=0.5, answers=0.8,
        peer="huey", peer_one=0.9, peer_bulk=0, peer_drain=10, peer_latency=0, latency={50: 2.5, 99: 12},
    ),
    POSTGRES: Targets(
        one=0.9, concurrently=8, bulk=0.9, drain=0.8, limited=0.7, lanes=0.7, answered=0.7, answers=0.7,
        peer="pgqueuer", peer_one=1.05, peer_bulk=1.4, peer_drain=1.5, peer_latency=0.75, latency={99: 12},
    ),
    MARIADB: Targets(
        one=0.8, concurrently=4, bulk=0.8, drain=0.5, limited=0, lanes=0, answered=0, answers=0,
        peer="", peer_one=0, peer_bulk=0, peer_drain=0, peer_latency=0, latency={50: 25},
    ),
}  # fmt: skip


def work(_: Job[Any]) -> None: ...


async def awork(_: Job[Any]) -> None: ...


class Bench:
    """One database, a fresh queue for every measurement."""

    def __init__(
        self, url: str, raw: Callable[[str, int], Any], size: int, quick: bool = False, company: Company | None = None
    ) -> None:  # fmt: skip
        self.app = Hipq("bench", url)
        self.app.migrate()
        self._raw = raw
        self.size = size
        self.quick = quick
        self.store = {"sqlite": SQLITE, "mariadb": MARIADB}.get(url.partition(":")[0], POSTGRES)
        self.company = company or Company()
        """The peers, if any are to be measured."""
        self._names = (f"{a}{b}" for a in "abcdefghijklmnopqrstuvwxyz" for b in "abcdefghijklmnopqrstuvwxyz")

    @property
    def targets(self) -> Targets:
        return TARGETS[self.store]

    def queue(self, handler: Callable[..., Any] = work, **options: Any) -> Queue:
        """With one job type, as plain SQL and the peers have it."""
        queue = self.app.queue(next(self._names), **options)
        queue.job("work")(handler)
        assert queue.number
        return queue

    @contextmanager
    def raw(self, queue: Queue) -> Iterator[Any]:
        raw = self._raw(f"bench_{queue.name}", queue.number)
        try:
            yield raw
        finally:
            raw.close()

    def vacuum(self, queue: Queue) -> bool:
        """What the database does by itself after a while; False if it never does."""
        with self.raw(queue) as raw:
            return bool(raw.vacuum())

    @contextmanager
    def engine(self, queue: Queue) -> Iterator[Engine]:
        """Made before the clock starts, as a peer's worker is: that forks a process."""
        engine = self.app.engine([queue.name])
        try:
            yield engine
        finally:
            engine.executor.close()

    def drain(self, queue: Queue) -> float:
        """Seconds the engine runs."""
        with self.engine(queue) as engine:
            return seconds(lambda: engine.run(until_empty=True))

    def check_done(self, queue: Queue, count: int | None = None) -> None:
        """Counted by completed jobs: the queue is empty and every job has its final row."""
        self._check(queue, (0, self.size if count is None else count))

    def check_added(self, queue: Queue, count: int) -> None:
        self._check(queue, (count, 0))

    def _check(self, queue: Queue, expected: tuple[int, int]) -> None:
        with self.raw(queue) as raw:
            found = raw.counts()
        if found != expected:
            raise Broken(f"queue {queue.name}: {found} jobs live and done, not {expected}")
