"""What goes wrong again and again: it is tried less and less often, and the log does not grow with it."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from tests.daemon.api_serving import Site, eventually
from tests.daemon.working import add, daemon, ended, history

JOBS = 2_000


def test_each_pause_before_the_next_try_is_longer_than_the_one_before(tmp_path: Path) -> None:
    with daemon(tmp_path, retry_after=0.2, retry_most=3600.0, give_up_after=4.0) as served:
        (job_id,) = add(served, "nobody")
        found = ended(served, job_id)
    tries = [entry["at"] for entry in history(found) if entry["event"] == "error"]
    pauses = [after - before for before, after in pairwise(tries)][:-1]  # the last is shorter: its time is over
    assert len(pauses) >= 2
    assert all(pause >= 200_000 * 2**n for n, pause in enumerate(pauses)), pauses


def test_many_jobs_without_a_handler_are_a_few_lines_and_one_with_a_count(tmp_path: Path) -> None:
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    try:
        served = site.daemon("--retry-after", "1")
        tenant = site.tenant()
        ids = tenant.add("nobody", b"x\n" * JOBS)
        eventually(lambda: all(tenant.job(job_id)["failures"] for job_id in (ids[0], ids[-1])))
        served.stop()
        lines = [line for line in served.log.splitlines() if "WARNING" in line]
        assert len(lines) < 40, lines[:50]
        assert all(f"tenant={tenant.name}" in line for line in lines)
        counted = [int(found[1]) for line in lines if (found := re.search(r" again .*count=(\d+) .*type=nobody", line))]
        assert sum(counted) + 5 >= JOBS
        assert "there is no handler for nobody" in served.log
    finally:
        site.close()
