"""A real Celery worker with its pool of processes: far tasks come from it as they come to it, and it publishes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.celery.running import Shop
from tests.servers import OwnPostgres

SEND = """
from celery import chain, chord, group
far = {"countdown": 2}
sent = {
    "plain": note.apply_async(("plain",), **far),
    "retries": stubborn.delay(),
    "chain": chain(note.s("first").set(**far), second.s().set(**far)).apply_async(),
    "chord": chord([note.s("a").set(**far), note.s("b").set(**far)])(join.s().set(**far)),
    "priority": note.apply_async(("urgent",), priority=0, **far),
    "revoked": note.apply_async(("never",), countdown=3600),
}
members = group(note.s(str(n)) for n in range(3)).apply_async(**far)
app.control.revoke(sent["revoked"].id)
"""
WAIT = """
ids = {name: result.id for name, result in sent.items()}
results = {name: result.get(timeout=80) for name, result in sent.items() if name != "revoked"}
print(json.dumps([ids, results, members.get(timeout=80), sent["revoked"].state]))
"""


def test_everything_that_a_worker_does_with_far_tasks(shop: Callable[..., Shop], db: str) -> None:
    busy = shop(db=db)
    with busy.worker("prefork") as worker:
        ids, results, members, revoked = busy.send(SEND + WAIT)
        assert worker.poll() is None
    assert worker.returncode == 0, busy.log()
    assert results == {
        "plain": "plain",
        "retries": "at last",
        "chain": "first, then this",
        "chord": "a b",
        "priority": "urgent",
    }
    assert members == ["0", "1", "2"]
    assert revoked == "REVOKED"
    retries = [line["retries"] for line in busy.lines("ran", ids["retries"])]
    assert retries == [0, 1, 2]  # each with the same id, the last two kept by a process of the pool
    ran = [line["id"] for line in busy.lines("ran")]
    assert len(ran) - 2 == len(set(ran)) == 1 + 1 + 2 + 3 + 1 + 3
    assert ids["revoked"] not in ran
    assert "Traceback" not in busy.log()
    assert not busy.at_broker()


def test_a_killed_worker_leaves_no_process_and_no_task_behind(shop: Callable[..., Shop], tmp_path: Path) -> None:
    killed = shop(db=f"sqlite:///{tmp_path}/kept.db")
    with killed.worker("prefork") as worker:
        job_id = killed.send("print(json.dumps(note.apply_async(('far',), countdown=8).id))")
        worker.kill()
        killed.until(lambda: worker.poll() is not None)
        killed.until(lambda: not exists(worker.pid))
    with killed.worker("prefork") as worker:
        killed.until(lambda: killed.lines("ran", job_id), worker)
        killed.until(lambda: not killed.at_broker(), worker)
    assert len(killed.lines("ran", job_id)) == 1


def exists(group: int) -> bool:
    """Whether any process is left of it."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_whose_database_is_away_works_on_and_publishes_when_it_is_back(shop: Callable[..., Shop]) -> None:
    with OwnPostgres() as server:
        first = shop("first", server.url)
        first.send("print(json.dumps(kept.migrate()))")
        job_id = first.send("print(json.dumps(note.apply_async(('far',), countdown=5).id))")
        server.stop()
        with first.worker("solo") as worker:
            near = first.send("print(json.dumps(note.delay('near').id))")
            first.until(lambda: first.lines("ran", near), worker)
            first.until(lambda: "kept tasks are not published from this worker right now" in first.log(), worker)
            server.start()
            first.until(lambda: first.lines("ran", job_id), worker)
    assert worker.returncode == 0, first.log()
