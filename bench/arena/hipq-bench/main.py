"""hipq in the long-horizon benchmark: a producer, a worker and samples in one process, as adapters have to be."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hipq import Hipq, HipqError, Job, __version__

SYSTEM = "hipq"
TABLES = ["public.bench_jobs", "public.bench_jobs_final", "public.hipq_engines"]
WINDOW = 30.0
"""Seconds that percentiles look back."""


def number(name: str, default: int) -> int:
    return int(os.environ.get(name) or default)


RATE = number("PRODUCER_RATE", 800)
DEPTH = number("TARGET_DEPTH", 1000)
WORKERS = number("WORKER_COUNT", 32)
EVERY = number("SAMPLE_EVERY_S", 5)
WORK = number("JOB_WORK_MS", 1) / 1000
BATCH = max(1, number("PRODUCER_BATCH_MAX", 128))
TICK = max(1, number("PRODUCER_BATCH_MS", 10)) / 1000
PADDING = "x" * max(0, number("JOB_PAYLOAD_BYTES", 256) - 96)
INSTANCE = number("BENCH_INSTANCE_ID", 0)
IS_FIRST = INSTANCE == 0
PRODUCES = IS_FIRST or not number("PRODUCER_ONLY_INSTANCE_ZERO", 0)

app = Hipq("bench", os.environ["DATABASE_URL"])
jobs = app.queue("jobs")


class Latencies:
    """The last of a kind, in a ring of bounded size: when, and how many milliseconds."""

    def __init__(self) -> None:
        self._ring: deque[tuple[float, float]] = deque(maxlen=32_768)

    def add(self, seconds: float) -> None:
        self._ring.append((time.monotonic(), seconds * 1000))

    def percentiles(self) -> dict[str, float]:
        since = time.monotonic() - WINDOW
        values = sorted(value for at, value in list(self._ring) if at >= since) or [0.0]
        return {f"p{part}": values[min(len(values) * part // 100, len(values) - 1)] for part in (50, 95, 99)}


class Counts:
    def __init__(self) -> None:
        self.enqueued = self.completed = 0
        self.depth = {"queue": 0, "running": 0, "retryable": 0, "scheduled": 0}
        self.target = float(RATE)


counts, producer, subscriber, end_to_end = Counts(), Latencies(), Latencies(), Latencies()


@jobs.job
async def bench_job(job: Job[Any]) -> None:
    subscriber.add(time.time() - job.data["at"])
    if WORK:
        await asyncio.sleep(WORK)
    end_to_end.add(time.time() - job.data["at"])
    counts.completed += 1


def emit(record: dict[str, Any]) -> None:
    print(json.dumps({"system": SYSTEM, "instance_id": INSTANCE, **record}), flush=True)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def target_rate() -> float:
    """What the harness says in its file, else what it said in the beginning."""
    with suppress(KeyError, OSError, ValueError):
        return float(Path(os.environ["PRODUCER_RATE_CONTROL_FILE"]).read_text())
    return float(RATE)


async def produce() -> None:
    """Credit grows by the time that has really passed."""
    last, credit, sequence = time.monotonic(), 0.0, 0
    while True:
        await asyncio.sleep(TICK)
        passed, last = time.monotonic() - last, time.monotonic()
        if os.environ.get("PRODUCER_MODE") == "depth-target":
            counts.target, credit = 0.0, float(max(DEPTH - counts.depth["queue"], 0))
        else:
            counts.target = target_rate()
            credit += counts.target * passed
        while credit >= 1:
            count = min(int(credit), BATCH)
            credit -= count
            data = [{"seq": sequence + one, "at": time.time(), "padding": PADDING} for one in range(count)]
            began = time.monotonic()
            try:
                await bench_job.aenqueue_many(data)
            except HipqError as error:
                print(f"not added: {error}", file=sys.stderr, flush=True)
                await asyncio.sleep(0.2)
                break
            producer.add((time.monotonic() - began) / count)
            sequence += count
            counts.enqueued += count


async def look() -> None:
    """How deep the queue is: of one instance, and as far as counting goes by default."""
    phases = {"queue": "ready", "running": "executing", "scheduled": "scheduled"}
    while True:
        with suppress(HipqError):
            for name, phase in phases.items():
                counts.depth[name] = await app.jobs.acount("jobs", phase=phase)
            counts.depth["retryable"] = await app.jobs.acount("jobs", state="retry")
        await asyncio.sleep(0.25)


async def sample() -> None:
    await asyncio.sleep(EVERY - time.time() % EVERY)  # on the clock's own seconds, as all others
    enqueued, completed, last = counts.enqueued, counts.completed, time.monotonic()
    while True:
        await asyncio.sleep(EVERY - time.time() % EVERY)
        passed, last = max(time.monotonic() - last, 0.001), time.monotonic()
        metrics: dict[str, tuple[float, float]] = {
            "enqueue_rate": ((counts.enqueued - enqueued) / passed, EVERY),
            "completion_rate": ((counts.completed - completed) / passed, EVERY),
        }
        enqueued, completed = counts.enqueued, counts.completed
        for name, kind in {
            "producer": producer, "subscriber": subscriber, "claim": subscriber, "end_to_end": end_to_end,
        }.items():  # fmt: skip
            metrics |= {f"{name}_{part}_ms": (value, WINDOW) for part, value in kind.percentiles().items()}
        if IS_FIRST:
            metrics |= {f"{name}_depth": (count, 0) for name, count in counts.depth.items()}
            metrics |= {"total_backlog": (sum(counts.depth.values()), 0), "producer_target_rate": (counts.target, 0)}
        for name, (value, window) in metrics.items():
            emit({"t": now(), "kind": "adapter", "subject_kind": "adapter", "subject": "", "metric": name,
                  "value": value, "window_s": window})  # fmt: skip


async def main() -> None:
    """The engine works in a thread, and its handlers on a loop of their own; everything else is here."""
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, over.set)
    tasks = [asyncio.create_task(work()) for work in (sample, *([look] * IS_FIRST), *([produce] * PRODUCES))]
    await over.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    if os.environ.get("SCENARIO", "long_horizon") not in ("long_horizon", "migrate_only"):
        sys.exit(f"the scenario {os.environ['SCENARIO']} is not one of this adapter: long_horizon, migrate_only")
    app.migrate()
    if os.environ.get("SCENARIO") != "migrate_only":
        emit({
            "kind": "descriptor", "event_tables": TABLES, "extensions": [], "version": f"hipq {__version__}",
            "schema_version": __version__, "db_name": os.environ["DATABASE_URL"].rpartition("/")[2].partition("?")[0],
            "started_at": now(),
        })  # fmt: skip
        with app.working(concurrency=WORKERS):
            asyncio.run(main())
    app.close()
