"""What a worker costs that has nothing to do: memory, processor time and, on PostgreSQL, questions to the server."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.servers import fresh_database

from bench.lines import THE_LIMIT, Bench, Line
from bench.peers import SQLITE
from bench.served import Worker, declare, until_alive

MANY_QUEUES = 50
SETTLE = 3.0
"""Seconds until a worker that has just started is idle."""
QUERIES = 2.0
"""A second, at most, for any number of queues."""


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
