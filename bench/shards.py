"""What a second and a third server bring: `python -m bench.shards`. Each PostgreSQL server may use the same small part
of a core (a cgroup says so), and the same program adds jobs to one, two or three of them and runs these, in turns.

A cgroup needs root.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

from tests.servers import OwnPostgres, installed_binaries

from hipq import Hipq, Job

PART: Final = 0.15
"""The part of a core that each server may use."""
JOBS: Final = 4_000
"""Jobs for each server, a round."""
ROUNDS: Final = 3
GROUPS: Final = Path("/sys/fs/cgroup/cpu")
_names = count()


@contextmanager
def held_to(part: float, server: OwnPostgres) -> Iterator[None]:
    """A server, started before, that may use no more than this part of a core from here on."""
    group = GROUPS / f"hipq-bench-{server.pid}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("20000")
        (group / "cpu.cfs_quota_us").write_text(str(round(20_000 * part)))
        for pid in (server.pid, *children_of(server.pid)):
            with suppress(ProcessLookupError):  # one that has just ended
                (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for left in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (GROUPS / "cgroup.procs").write_text(left)
        group.rmdir()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def measured(urls: list[str]) -> tuple[float, float, float]:
    """Jobs a second that are added and run, and the cores that this program used meanwhile."""
    app = Hipq("scale_" + "abc"[len(urls) - 1], urls)  # an instance keeps its shards
    queue = app.queue(f"round_{chr(97 + next(_names))}")

    @queue.job
    def work(job: Job[int]) -> int:
        return job.data

    app.migrate()
    jobs = JOBS * len(urls)
    work.enqueue_many(range(10), keys=[f"warm-{n}" for n in range(10)])
    app.run(until_empty=True)
    began = time.perf_counter()
    for start in range(0, jobs, 500):
        some = range(start, start + 500)
        work.enqueue_many(some, keys=[f"key-{n}" for n in some])
    added = time.perf_counter()
    used = time.process_time()
    app.run(until_empty=True, concurrency=10)
    ended = time.perf_counter()
    assert app.jobs.count(queue.name, state="final", most=1 << 30) == jobs + 10
    app.close()
    return jobs / (added - began), jobs / (ended - added), (time.process_time() - used) / (ended - added)


def main() -> None:
    if os.geteuid() or not GROUPS.is_dir():
        sys.exit(f"bench.shards must be root and needs {GROUPS}, where it makes a cgroup for each server")
    with ExitStack() as stack:
        servers = [OwnPostgres(binaries=installed_binaries()) for _ in range(3)]
        for server in servers:
            server.start()
            stack.callback(server.close)
            stack.enter_context(held_to(PART, server))
        found: dict[int, list[tuple[float, float, float]]] = {1: [], 2: [], 3: []}
        for _ in range(ROUNDS):
            for number, rounds in found.items():
                rounds.append(measured([server.url for server in servers[:number]]))
                print(f"{number} servers: " + ", ".join(f"{value:,.2f}" for value in rounds[-1]), flush=True)
    first = [median(values) for values in zip(*found[1], strict=True)]
    for number, rounds in found.items():
        adding, running, cores = (median(values) for values in zip(*rounds, strict=True))
        print(
            f"{number} servers at {PART:.0%} of a core: adds {adding:,.0f}/s ({adding / first[0]:.2f}x), runs "
            f"{running:,.0f}/s ({running / first[1]:.2f}x), with {cores:.2f} cores of this program"
        )


if __name__ == "__main__":
    main()
