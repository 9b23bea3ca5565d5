"""What a worker costs that has nothing to do: memory, processor time and, on PostgreSQL, questions to the server. And
what one job costs where many workers have nothing to do."""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psycopg

from bench.database import fresh_database
from bench.lines import THE_LIMIT, Bench, Line
from bench.peers import SQLITE
from bench.served import Worker, declare, until_alive
from hipq import Queue

MANY_QUEUES = 50
SETTLE = 3.0
"""Seconds until a worker that has just started is idle."""
QUERIES = 1.0
"""A second, at most, for any number of queues."""
MANY_WORKERS = 32
TOGETHER = 20.0
"""Statements a second of so many workers."""
ONE_JOB = 12.0
"""Statements of so many workers after one job was added, at most."""
NONE = 0.5
"""Statements that are as good as none: some workers polled at that moment."""
WINDOW = 0.5
"""Seconds after a job was added in which statements count."""
CONNECTIONS = 2.0
START = 500.0
"""Milliseconds from the start of a worker's process to its lease, at most."""


class Limits(NamedTuple):
    megabytes: float
    percent: float


FILE, SERVER = Limits(40, 0.2), Limits(60, 0.5)


def lines(bench: Bench, seconds: float = 20.0) -> Iterator[Line]:
    """In databases of its own: nothing else happens there."""
    with ExitStack() as stack:
        if bench.store == SQLITE:
            urls = [f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/idle.db"]
            yield from _idle(stack, urls, (1,), FILE, seconds)
        else:
            urls = [stack.enter_context(fresh_database()) for _ in range(2)]
            yield from _idle(stack, urls, (1, MANY_QUEUES), SERVER, seconds)
            with fresh_database() as url:
                yield from _many_idle(url, 8 if bench.quick else MANY_WORKERS, seconds)


def _many_idle(url: str, count: int, seconds: float) -> Iterator[Line]:
    """Workers that serve the same queue, and are all idle."""
    app = declare(url)
    app.migrate()
    (queue,) = app.queues
    foreign = app.queue("foreign")
    with ExitStack() as stack:
        workers, starts = [], []
        for number in range(count):
            began = time.monotonic()
            workers.append(stack.enter_context(Worker(url, count=True)))
            until_alive(app, number + 1)
            starts.append(1000 * (time.monotonic() - began))
        yield Line("start of a worker, until it has its lease", statistics.median(starts), START, 1.0, "ms", THE_LIMIT)
        time.sleep(4 * SETTLE)  # until all have counted each other
        _asked(workers)
        time.sleep(seconds)
        idle = _asked(workers) / seconds
        name = f"{count} idle workers"
        yield Line(f"{name}: queries of all together", idle, TOGETHER, 1.0, "/s", THE_LIMIT)
        with psycopg.connect(url) as conn:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            ((connections,),) = conn.execute(query).fetchall()
        yield Line(f"{name}: connections of each", (connections - 1) / count, CONNECTIONS, 1.0, "", THE_LIMIT)
        for what, one, limit in ((f"{name}: queries after one job", queue, ONE_JOB), (
            f"{name}: queries after a job that none of them serves", foreign, NONE
        )):  # fmt: skip
            found = statistics.median(_after_one(one, workers) for _ in range(11)) - idle * WINDOW
            yield Line(what, max(found, 0.0), limit, 1.0, "", THE_LIMIT)
    app.close()


def _after_one(queue: Queue, workers: list[Worker]) -> int:
    time.sleep(WINDOW)
    _asked(workers)
    queue.enqueue("work")
    time.sleep(WINDOW)
    return _asked(workers)


def _asked(workers: list[Worker]) -> int:
    """Statements of all of them since the last time."""
    return sum(worker.statements() for worker in workers)


def _idle(stack: ExitStack, urls: list[str], queues: tuple[int, ...], limits: Limits, seconds: float) -> Iterator[Line]:
    """Workers that are idle at the same time, one a database: none of them is in another's way."""
    workers = [_started(stack, url, count) for url, count in zip(urls, queues, strict=True)]
    time.sleep(SETTLE)
    for worker in workers:
        worker.statements()
    before, began = [_used(worker.pid) for worker in workers], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    used = [_used(worker.pid) - then for worker, then in zip(workers, before, strict=True)]
    asked = [worker.statements() for worker in workers]
    yield _memory(workers[0], limits)
    for count, spent in zip(queues, used, strict=True):
        name = f"idle worker: part of a core, {_queues(count)}"
        yield Line(name, 100 * spent / took, limits.percent, 1.0, "%", THE_LIMIT)
    if limits is SERVER:
        for count, sent in zip(queues, asked, strict=True):
            yield Line(f"idle worker: queries, {_queues(count)}", sent / took, QUERIES, 1.0, "/s", THE_LIMIT)


def _memory(worker: Worker, limits: Limits) -> Line:
    """Of the worker itself; it has a helper that forks processes for handlers, and shares most of its memory."""
    both = [_megabytes(pid) for pid in (worker.pid, *_children(worker.pid))]
    (resident, proportional), *_ = both
    whole, shares = (sum(sizes) for sizes in zip(*both, strict=True))
    name = f"idle worker: RSS ({whole:.0f} with its helper; PSS {proportional:.0f} and {shares:.0f})"
    return Line(name, resident, limits.megabytes, 1.0, "MB", THE_LIMIT)


def _queues(count: int) -> str:
    return f"{count} queue{'s' if count > 1 else ''}"


def _started(stack: ExitStack, url: str, queues: int) -> Worker:
    """A second one: the first has compiled the modules, and made the tables."""
    app = declare(url, queues)
    app.migrate()
    with Worker(url, queues=queues):
        until_alive(app, 1)
    worker = stack.enter_context(Worker(url, queues=queues, count=not url.startswith("sqlite")))
    until_alive(app, 1)
    app.close()
    return worker


def _used(pid: int) -> float:
    """Seconds of processor time, of a process and its children that live."""
    total = 0
    for one in (pid, *_children(pid)):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def _megabytes(pid: int) -> tuple[float, float]:
    """Resident, and its part of what it shares with others; as far as we may see that."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        text = Path(f"/proc/{pid}/status").read_text()
    found = {name: int(size) for name, size in re.findall(r"^(?:Vm)?(Rss|RSS|Pss):\s+(\d+) kB", text, re.MULTILINE)}
    resident = found.get("Rss", found.get("RSS", 0))
    return resident / 1024, found.get("Pss", resident) / 1024
