"""`python -m bench.size --json docs/size.json`: bytes of disk for each job and each answer, on both stores.

Jobs are added, run, and left to wait; before and after each step the database says how large it is, after a VACUUM.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sqlite3
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from bench.database import fresh_database
from hipq import Hipq, Job, Wait

PAYLOADS = (100, 1_000, 10_000)


def sqlite_size(url: str) -> int:
    file = url.removeprefix("sqlite:///")
    with sqlite3.connect(file) as conn:
        conn.execute("VACUUM")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(file).stat().st_size


def postgres_size(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("VACUUM FULL")
        row = conn.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row
    return int(row[0])


def measured(url: str, size: Callable[[str], int], payload: int, jobs: int) -> dict[str, float]:
    """Bytes for each job: live, final, and beside that for an answer of a tenth of the payload."""
    app = Hipq(f"size_{'a' * (len(str(payload)) - 2)}", url)
    queue = app.queue("work")
    plain = queue.job(name="plain")(lambda _job: None)
    waiting = queue.job(name="waiting")(_wait)
    app.migrate()
    data = [
        {"text": secrets.token_hex(payload // 2 - 6)} for _ in range(jobs)
    ]  # text that cannot be compressed by much
    sizes = [size(url)]
    for step in (
        lambda: plain.enqueue_many(data),
        lambda: app.run(until_empty=True, concurrency=10),
        lambda: waiting.enqueue_many(data, keys=[f"order-{n}" for n in range(jobs)]),
        lambda: app.run(until_empty=True, concurrency=10),
        lambda: app.answer_many(_answers(jobs, payload)),
    ):
        step()
        sizes.append(size(url))
    app.close()
    each = [(after - before) / jobs for before, after in pairwise(sizes)]
    return {
        "live": round(each[0]),
        "final": round(each[0] + each[1]),
        "waiting": round(each[2] + each[3]),
        "answered": round(each[2] + each[3] + each[4]),
    }


def _wait(_job: Job[Any]) -> Wait:
    return Wait()


def _answers(jobs: int, payload: int) -> list[dict[str, Any]]:
    return [
        {"queue": "work", "type": "waiting", "key": f"order-{n}", "data": {"text": secrets.token_hex(payload // 20)}}
        for n in range(jobs)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--jobs", type=int, default=20_000)
    given = parser.parse_args()
    found: dict[str, Any] = {"jobs": given.jobs}
    with tempfile.TemporaryDirectory() as folder, fresh_database() as postgres:
        for name, url, size in (
            ("sqlite", f"sqlite:///{folder}/size.db", sqlite_size),
            ("postgresql", postgres, postgres_size),
        ):
            found[name] = {str(bytes_): measured(url, size, bytes_, given.jobs) for bytes_ in PAYLOADS}
    text = json.dumps(found, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
