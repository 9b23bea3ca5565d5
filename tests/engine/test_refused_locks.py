"""SQLite's lock file on a file system that refuses locks for a while, as one of a network may."""

from __future__ import annotations

import errno
import fcntl
import os
import threading

import pytest

from hipq import Hipq, Queue, StoreUnavailable
from hipq.stores.sqlite import connection
from tests.engine.working import one_store, real_time, until, working


@pytest.fixture(autouse=True)
def lock_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every SQLite before 3.51.3 needs it."""
    monkeypatch.setattr(connection, "SAFE_VERSION", (99, 0, 0))


@one_store
@real_time
@pytest.mark.parametrize("verb", ["lock", "unlock"])
def test_the_store_is_down_until_locks_are_granted_again(
    app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    refused, real = threading.Event(), fcntl.flock

    def flock(descriptor: int, what: int) -> None:
        if refused.is_set() and (what == fcntl.LOCK_UN) == (verb == "unlock"):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        real(descriptor, what)

    queue.job("work")(lambda _: "done")
    told: list[tuple[str, str]] = []
    app.events.subscribe(lambda event: told.append((event.name, str(event.details))), "store down", "store back")
    with working(app):
        monkeypatch.setattr("fcntl.flock", flock)
        refused.set()
        with pytest.raises(StoreUnavailable, match=f"cannot {verb} .*-hipq: No locks available"):
            queue.enqueue("work")
        until(lambda: told)
        refused.clear()
        job_id = queue.enqueue("work")
        until(lambda: app.job(job_id).result == "done")
        until(lambda: len(told) > 1)
    assert [name for name, _ in told] == ["store down", "store back"]
    assert "No locks available" in told[0][1]
