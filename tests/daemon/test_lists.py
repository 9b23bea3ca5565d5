"""A list of jobs has room in memory, whatever the jobs carry; its page can be gone through, and each job looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq import Hipq
from hipq.daemon import job_factory, jobs
from hipq.errors import NotFound
from hipq.job import transitions
from hipq.job.model import Change
from hipq.stores.claims import Claim
from tests.daemon.working import made as unstarted
from tests.databases import fresh

pytestmark = pytest.mark.every_store

JOBS = 8
MEGABYTES = 8

LOOK = """
import json, re, sys
from pathlib import Path
from hipq import Hipq
from hipq.stores.filters import Filter
def peak():  # in kilobytes; what getrusage says may be the peak of the process that started this one
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
app = Hipq("daemon", sys.argv[1])
queue = app.queue("jobs")
number = queue.number
first = Filter(number, limit=1)
assert app.store.find(first._replace(tenant="acme"), brief=True) == app.store.find(first, brief=True)
before = peak()
count = len(app.jobs("jobs")) + len(app.store.find(Filter(number, tenant="acme"), brief=True))
count += len(queue.running_jobs)
listed = peak()
len(app.store.find(Filter(number, tenant="acme")))
print(json.dumps([count, listed - before, peak() - before]))
"""


@pytest.fixture
def url(store_kind: str, tmp_path: Path) -> Iterator[str]:
    with fresh(store_kind, tmp_path / "daemon.db") as found:
        yield found


def filled(url: str) -> Hipq:
    """Half of the jobs have ended, with large results; all have large payloads."""
    app = Hipq("daemon", url)
    queue = app.queue("jobs")
    app.migrate()
    store, now, large = app.store, app.store.now(), b"x" * (MEGABYTES << 20)
    engine_id = store.take_lease(3600, "test")
    for _ in range(JOBS):
        store.enqueue([job_factory.job(queue.number, "acme", "big", large, job_factory.PLAIN, now)])
    for _ in range(JOBS // 2):
        claim = Claim(queue.number, ("big",), 1, lane="acme/big")
        (row,) = store.turn(engine_id, [], [claim], now).won
        store.turn(engine_id, [Change(row, transitions.succeeded(row, f'"{large.decode()}"', 200, now))], [], now)
    return app


def test_a_list_does_not_read_what_jobs_carry(url: str) -> None:
    app = filled(url)
    app.close()
    said = subprocess.run([sys.executable, "-c", LOOK, url], capture_output=True, text=True, check=True)
    count, listed, found = json.loads(said.stdout)
    assert count == 2 * JOBS
    carried = JOBS * MEGABYTES << 10  # in kilobytes, as what is measured
    assert found > carried, "so this measure would show it"
    assert listed < carried // 6, (listed, found)


def test_what_a_listed_job_carries_is_read_when_it_is_asked_for(url: str) -> None:
    app = Hipq("shop", url)
    orders = app.queue("orders")

    @orders.job
    def ship(job):  # type: ignore[no-untyped-def]
        return {"shipped": job.data}

    app.migrate()
    ids = [ship.enqueue(n) for n in range(3)]
    listed = app.jobs("orders", oldest=True)
    app.run(until_empty=True)
    assert [job.state for job in listed] == ["initial"] * 3, "as they were"
    assert [job.data for job in listed] == [0, 1, 2]
    first, _, third = app.jobs("orders", oldest=True)
    assert (first.id, first.result) == (ids[0], {"shipped": 0})
    assert [entry["event"] for entry in first.history][-1] == "ok"
    app.jobs.prune(0)
    assert first.data == 0, "it was read before"
    with pytest.raises(NotFound):
        _ = third.data
    app.close()


def test_a_page_looks_at_no_more_than_so_many_jobs(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of them are wanted: whoever wants to see all of those asks again, and others have their turn in between."""
    monkeypatch.setattr(jobs, "LOOKED_AT", 100)
    served = unstarted(tmp_path, url)
    try:
        store, queue = served.store, served.queue.number
        wanted = [n for n in range(450) if n in (30, 120, 130, 449)]
        news = [
            job_factory.job(queue, "acme", "rare" if n in wanted else "usual", b"x", job_factory.PLAIN, 1)
            for n in range(450)
        ]
        ids = [one.id for one in store.enqueue(news)]
        pages, after = [], 0
        while True:
            page = served.jobs.list("acme", type="rare", after=after)
            pages.append([ids.index(row.id) for row in page.rows])
            if not page.next:
                break
            after = page.next
        assert pages == [[30], [120, 130], [], [], [449]]
        assert served.jobs.list("acme", type="rare", limit=1).next == ids[30], "the page was full"
        assert len(served.jobs.list("acme", limit=400).rows) == 400, "all that were looked at"
        assert served.jobs.list("acme", key=str(ids[449]), type="rare").rows[0].id == ids[449], "a key is found at once"
    finally:
        served.stop()
        served.close()
