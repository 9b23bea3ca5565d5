"""`python -m bench.neighbour`: somebody else's transaction stays open in the same PostgreSQL while hipq works.

Jobs are added at a steady rate by another process and run here. A third of the time before, a third while a snapshot is
held open elsewhere (so that no vacuum can remove anything), a third after. Where the server does not vacuum by itself,
this does it now and then.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import threading
import time
from contextlib import ExitStack
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import psycopg

from bench.crowd import table
from bench.database import fresh_database
from bench.growth_page import PHASES, STEP, Step, load, write
from bench.lines import PAYLOAD
from bench.measure import percentile
from bench.snapshot import held_open
from hipq import Hipq, Job
from hipq.stores.claims import Turned

RATE = 3_000
"""Jobs a second: some of what a worker can do, so that it need not fall behind."""
AT_ONCE = 100
VACUUM_STEPS = 6


class Turns:
    """What an engine's turns take, seen from where it calls the store."""

    def __init__(self, app: Hipq) -> None:
        self._times: list[float] = []
        self.completed = 0
        turn = app.store.turn

        def timed(engine_id: int, changes: Any, claims: Any, now: int) -> Turned:
            began = time.perf_counter()
            turned = turn(engine_id, changes, claims, now)
            if turned.won:
                self._times.append((time.perf_counter() - began) * 1000)
            self.completed += sum(change.after.phase == "done" for change in changes)
            return turned

        app.store.turn = timed  # type: ignore[method-assign]

    def taken(self) -> list[float]:
        found, self._times = self._times, []
        return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbour", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="in all; at least three times five")
    parser.add_argument("--rate", type=int, default=RATE, help="jobs added a second")
    parser.add_argument("--limit", type=int, default=0, help="of the queue; none unless given")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the results there, beside those of bench.growth"
    )
    options = parser.parse_args()
    with fresh_database() as url:
        rows = watch(url, max(round(options.seconds / 3 / STEP), 1), options.rate, options.limit)
    print(f"{'':8}{'completed/s':>12}{'turn p50 ms':>13}{'p99 ms':>10}{'dead rows':>12}")
    for row in rows:
        print(f"{row.phase:8}{row.completed:>12,.0f}{row.p50:>13.2f}{row.p99:>10.2f}{row.dead:>12,}")
    print(verdict(rows, options.rate))
    if options.json:
        write(options.json, load(options.json)._replace(neighbour=rows))


def _declared(url: str, limit: int) -> Hipq:
    app = Hipq("bench", url)

    @app.queue("neighbour", throttle_limit=limit).job
    def work(_: Job[Any]) -> None: ...

    return app


def _add(url: str, limit: int, rate: int, stopped: Event) -> None:
    """Another process adds jobs, some at a time, at a steady rate."""
    app = _declared(url, limit)
    due = time.monotonic()
    while not stopped.is_set():
        app.queues[0].enqueue_many("work", [PAYLOAD] * AT_ONCE)
        due += AT_ONCE / rate
        time.sleep(max(due - time.monotonic(), 0))
    app.close()


def watch(url: str, steps: int, rate: int, limit: int = 0) -> list[Step]:
    app = _declared(url, limit)
    app.migrate()
    turns = Turns(app)
    stopped = multiprocessing.get_context("spawn").Event()
    adding = multiprocessing.get_context("spawn").Process(target=_add, args=(url, limit, rate, stopped), daemon=True)
    engine = app.engine()
    running = threading.Thread(target=engine.run)
    found = []
    with psycopg.connect(url, autocommit=True) as watching:
        running.start()
        adding.start()
        time.sleep(3)
        for phase in PHASES:
            with ExitStack() as stack:
                if phase == "during":
                    stack.enter_context(held_open(url))
                for number in range(steps):
                    if number % VACUUM_STEPS == 0:
                        _vacuum(app, watching)
                    found.append(_step(app, turns, phase, watching))
        stopped.set()
        adding.join()
        engine.stop()
        running.join()
    engine.executor.close()
    app.close()
    return found


def _vacuum(app: Hipq, watching: psycopg.Connection[Any]) -> None:
    if watching.execute("SHOW autovacuum").fetchone() == ("off",):
        for name in (table(app.queues[0]), "hipq_engines", "hipq_queues"):
            watching.execute(f"VACUUM {name}".encode())


def _step(app: Hipq, turns: Turns, phase: str, watching: psycopg.Connection[Any]) -> Step:
    turns.taken()
    before, began = turns.completed, time.perf_counter()
    time.sleep(STEP)
    completed = (turns.completed - before) / (time.perf_counter() - began)
    times = turns.taken() or [0.0]
    query = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = %s"
    found = watching.execute(query, (table(app.queues[0]),)).fetchone()
    return Step(phase, completed, statistics.median(times), percentile(times, 99), int(found[0]) if found else 0)


def verdict(rows: list[Step], rate: int) -> str:
    """By the medians of the steps before and those during; it kept up if it completed what was added."""
    before, during = ([row for row in rows if row.phase == phase] for phase in PHASES[:2])
    part = statistics.median(row.completed for row in during) / rate
    slower = statistics.median(row.p50 for row in during) / statistics.median(row.p50 for row in before)
    good = part >= 0.95 and slower <= 2.0
    return (
        f"{'ok' if good else 'NOT GOOD'}: while the snapshot was open, {part:.2f} of what was added was completed, and "
        f"a turn took {slower:.2f} times as long (p50)"
    )


if __name__ == "__main__":
    main()
