"""examples/django_tasks: its two commands, and what is in its database afterwards."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from hipq import Hipq
from tests.examples.running import run


def test_a_day_in_the_bakery(tmp_path: Path) -> None:
    run("django_tasks/manage.py", tmp_path, "migrate")
    said = run("django_tasks/manage.py", tmp_path, "day").splitlines()
    assert said[-3:] == [
        "Anna: 2 loaves are baked",
        "Bruno: 3 loaves are baked, at attempt 2, after a ConnectionError",
        "Carla: failed after 3 attempts: ValueError",
    ]
    with closing(sqlite3.connect(tmp_path / "bakery.db")) as conn:
        orders = conn.execute("SELECT customer, baked_at IS NOT NULL FROM bakery_order ORDER BY id").fetchall()
    assert orders == [("Anna", 1), ("Bruno", 1), ("Carla", 0)]
    app = Hipq("django_tasks", f"sqlite:///{tmp_path / 'bakery.db'}")
    app.known("default")
    app.known("mails")
    try:
        assert sorted(job.code for job in app.jobs("default")) == ["error", "ok", "ok"]
        assert sorted(job.data["args"][0] for job in app.jobs("mails")) == ["Anna", "Bruno"]
    finally:
        app.close()
