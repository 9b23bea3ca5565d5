"""Three PostgreSQL servers as the shards of one instance: one is stopped for a while, one is killed, and nothing is
lost, nothing runs twice, and the limit over all of them is never exceeded."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from hipq.job.model import Row
from tests.contract.jobs import everything
from tests.crash.adders import Adding, most_at_once, runs_of
from tests.crash.program import TIMED_LIMIT, make_timed
from tests.crash.workers import Workers, eventually
from tests.servers import OwnPostgres

pytestmark = pytest.mark.long
LEASE = 60.0
"""Longer than a server is away: the jobs of its workers run on meanwhile, and are nobody else's."""
AWAY = 20.0
WORKERS = 6


@pytest.fixture
def servers() -> Iterator[list[OwnPostgres]]:
    servers = [OwnPostgres() for _ in range(3)]
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        server.thaw()
        server.stop()


def test_one_is_stopped_and_another_killed(servers: list[OwnPostgres], tmp_path: Path) -> None:
    urls = json.dumps([server.url for server in servers])
    with ExitStack() as stack:
        app = make_timed(urls, tmp_path)
        stack.callback(app.close)
        app.migrate()
        assert [queue.number for queue in app.queues]
        workers = stack.enter_context(Workers(urls, tmp_path, WORKERS, lease=LEASE, which="timed"))
        adding = [Adding(make_timed(urls, tmp_path), number) for number in range(6)]
        for one in adding:
            stack.callback(one.over.set)
        eventually(lambda: len(runs_of(tmp_path)) > 20, 60, "jobs run")
        time.sleep(5)
        servers[1].freeze()
        before = len(runs_of(tmp_path))
        time.sleep(AWAY)
        during = len(runs_of(tmp_path)) - before
        servers[1].thaw()
        time.sleep(5)
        servers[2].kill()
        time.sleep(5)
        servers[2].start()
        back = time.monotonic_ns()
        bulk = [f"bulk-{n}" for n in range(1_500)]
        adding[0].until_it_works(lambda: app.queues[0].enqueue_many("work", bulk, keys=bulk, on_duplicate="return"))
        time.sleep(15)
        for one in adding:
            one.end()
        keys = {key for one in adding for key in one.keys}
        rows: dict[str, list[Row]] = {}

        def all_ended() -> bool:
            rows.update({queue.name: everything(app.store, queue.number) for queue in app.queues})
            return all(row.state == "final" for some in rows.values() for row in some)

        eventually(all_ended, 180, "every job has ended")
        assert all(process.poll() is None for process in workers.processes), "a worker gave up"
    runs = runs_of(tmp_path)
    after = [run for run in runs if back + 10 * 10**9 < run[1] < back + 15 * 10**9]
    print(
        f"{len(keys)} keys, {len(runs)} runs, {during} of them in {AWAY:g} s without a server, "
        f"{most_at_once(after)} at once 10 s after the other was back, "
        f"{sum(one.failed for one in adding)} calls tried again"
    )
    assert {row.code for some in rows.values() for row in some} == {"ok"}
    assert {msgspec.json.decode(row.result) for row in rows["timed"]} == {*keys, *bulk}, "a job was lost"
    assert {msgspec.json.decode(row.result) for row in rows["answered"]} == keys, "an answer was lost"
    assert [job for job, times in Counter(job for job, _, _ in runs).items() if times > 1] == [], "ran twice"
    assert most_at_once(runs) == TIMED_LIMIT
    assert during > 20, "the others did not go on"
    assert most_at_once(after) == TIMED_LIMIT, "not all of the limit is used again"
