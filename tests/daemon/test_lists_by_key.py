"""A tenant's job is found by its key without reading the tenant's other jobs."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq
from hipq.daemon import job_factory
from hipq.stores.filters import Filter


def steps(store: Any, wanted: Filter, url: Path) -> int:
    """Of SQLite's machine, about, for the page that the store asks for."""
    pages = [(table, {**store._page(wanted, table), "selected": "id"}) for table in wanted.tables]
    query = store._of_tables("find", wanted.queue, pages, "{} ORDER BY id LIMIT :limit")
    count = 0

    def one() -> None:
        nonlocal count
        count += 1

    with sqlite3.connect(url) as conn:
        conn.set_progress_handler(one, 1)
        conn.execute(query, wanted._asdict()).fetchall()
    return count


@pytest.mark.parametrize("key", ["nobody", "order-7"])
def test_a_key_is_found_by_an_index_however_many_jobs_the_tenant_has(tmp_path: Path, key: str) -> None:
    path = tmp_path / "daemon.db"
    app = Hipq("daemon", f"sqlite:///{path}")
    queue = app.queue("jobs")
    app.migrate()
    now = app.store.now()
    wanted = Filter(queue.number, tenant="acme", job_key=key)
    took = []
    for n in range(2):
        options = job_factory.Options(key=f"order-{7 + n}")
        app.store.enqueue([job_factory.job(queue.number, "acme", "later", b"x", options, now)])
        app.store.enqueue(
            [job_factory.job(queue.number, "acme", "later", b"x", job_factory.PLAIN, now) for _ in range(2000)]
        )
        took.append(steps(app.store, wanted, path))
    assert len(app.store.find(wanted, brief=True)) == (key == "order-7")
    app.close()
    assert max(took) < 500, took
