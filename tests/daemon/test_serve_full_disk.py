"""`hipq serve` with its database and its journal on a disk that is full, in earnest, and later is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.api_serving import Site, eventually
from tests.small_disk import fill, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 8):
        yield tmp_path


def test_a_full_disk_is_507_what_runs_still_finishes_and_nothing_need_be_done_but_make_room(disk: Path) -> None:
    site = Site(f"sqlite:///{disk}/daemon.db", disk)
    try:
        daemon = site.daemon()
        tenant = site.tenant()
        tenant.handler("nap", "import time\ntime.sleep(float(payload))\nreturn 'rested'")
        (runs,) = tenant.add("nap", b"1\n")
        eventually(lambda: tenant.job(runs)["phase"] == "executing")
        fill(disk)
        got = tenant("POST", "/{}/job/nap/add", b"0\n" * 3000)
        assert got.status == 507
        assert got.headers["retry-after"]
        assert "no room on the disk" in got.error
        assert daemon.call("GET", "/health").json == {"status": "disk full"}
        eventually(lambda: "database or disk is full" in daemon.log)  # what ran has ended, and cannot be saved yet
        (disk / "ballast").unlink()
        (added,) = tenant.add("nap", b"0\n")
        assert tenant.ended(runs).body == b"rested"
        assert tenant.job(runs)["attempt"] == 1, "it did not run again"
        assert tenant.ended(added).body == b"rested"
        listed = tenant("GET", "/v1/{}/jobs").json
        assert sorted(job["id"] for job in listed["jobs"]) == sorted([runs, added]), (
            "of what was refused nothing is there"
        )
        eventually(lambda: daemon.call("GET", "/health").json == {"status": "ok"})
        assert "Traceback" not in daemon.log
    finally:
        site.close()
