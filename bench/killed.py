"""Workers are killed with their jobs running; how long until the last of these has started again, with defaults.

Several are killed at different moments of their lease, so that not just a lucky one is seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench.lines import THE_LIMIT, Bench, Line
from bench.served import Worker, declare, until_alive

LIMIT = 12.0
WORKERS = 3
JOBS = 10
"""As many as a worker has hands."""
APART = 1.3
"""Seconds between two deaths: a lease is renewed about every three."""


def lines(bench: Bench) -> Iterator[Line]:
    url = bench.app.url
    app = declare(url)
    app.migrate()
    held: dict[int, Worker] = {}
    died: dict[Worker, float] = {}
    with ExitStack() as stack:
        for number in range(WORKERS):
            worker = stack.enter_context(Worker(url, hold=600))
            until_alive(app, number + 1)
            ids = app.queues[0].enqueue_many("hold", [None] * JOBS)
            held |= {worker.report().job: worker for _ in ids}  # those before it have their hands full
            assert set(ids) <= held.keys()
        survivor = stack.enter_context(Worker(url))
        until_alive(app, WORKERS + 1)
        for worker in dict.fromkeys(held.values()):
            died[worker] = worker.kill()
            time.sleep(APART)
        waited = []
        for _ in held:
            report = survivor.report()
            waited.append(report.at - died[held[report.job]])
        assert len(waited) == WORKERS * JOBS
    with ExitStack() as stack:
        stack.callback(app.close)
        assert all(app.job(job_id).code == "ok" for job_id in held)
    yield Line(f"jobs of {WORKERS} killed workers run again, the last", max(waited), LIMIT, 1.0, "s", THE_LIMIT)
