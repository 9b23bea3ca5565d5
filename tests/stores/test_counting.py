"""Jobs that are to be tried again are counted in an index: among ten million jobs their rows are all over the disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.contract.jobs import LATER, new
from tests.stores.watched import WatchedMaria, WatchedPostgres, WatchedSqlite, watched

JOBS = 400


@pytest.fixture(params=["sqlite", "postgres"])
def watch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WatchedSqlite | WatchedPostgres]:
    with watched(request.param, tmp_path) as watch:
        assert not isinstance(watch, WatchedMaria)
        yield watch


def test_no_row_is_read_to_count_what_is_to_be_tried_again(watch: WatchedSqlite | WatchedPostgres) -> None:
    queue = watch.store.queue("shop", "plain", "shop_plain").number
    watch.store.enqueue([new(queue, f"k-{n}", scheduled_run_time=LATER, job_data=_long(n)) for n in range(JOBS)])
    watch.execute("UPDATE shop_plain SET state = 'retry', code = 'error', error = 'x'")
    watch.execute("VACUUM")
    seen = watch.during(lambda: watch.store.counts(queue, 2 * JOBS, 0, 0))
    assert watch.store.counts(queue, 2 * JOBS, 0, 0).retry == JOBS
    (counted,) = [one for one in seen if re.search(watch.pattern("depth_more", queue), one.text)]
    if isinstance(watch, WatchedPostgres):
        assert counted.work < JOBS // 10, "pages"
    else:
        values = {"most": JOBS, "failed_since": 0, "ended_since": 0}
        assert not watch.rows_read(counted.text, values)


def _long(number: int) -> str:
    """A few of them fill a page."""
    return f'"{"".join(sha256(f"{number} {n}".encode()).hexdigest() for n in range(20))}"'
