"""A slow job holds up nobody but itself: neither those of its own batch nor other tenants'."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq.daemon.daemon import Daemon
from hipq.runners.contexts import Contexts, Handler, Report, Task
from tests.daemon.working import SETTINGS, add, daemon, python, row
from tests.engine.working import until

BODY = "import time\nif payload == 'slow': time.sleep(600)\nreturn payload"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path, concurrency=3) as found:
        yield found
        found.stop()
        found.stop_now()  # else a job that sleeps is waited for


def test_those_behind_it_and_other_tenants_go_on(served: Daemon) -> None:
    python(served, "work", BODY)
    python(served, "work", "return payload", tenant="other")
    quick = add(served, "work", *(b"quick" for _ in range(60)))  # so that batches are large
    until(lambda: all(row(served, job_id).code == "ok" for job_id in quick))
    (slow, *behind) = add(served, "work", b"slow", *(b"quick" for _ in range(40)))
    until(lambda: all(row(served, job_id).code == "ok" for job_id in behind))
    others = add(served, "work", b"x", tenant="other")
    until(lambda: all(row(served, job_id).code == "ok" for job_id in others))
    assert {(row(served, job_id).attempt, row(served, job_id).failures) for job_id in behind} == {(1, 0)}, (
        "that costs nothing"
    )
    assert row(served, slow).phase == "executing"
    served.jobs.cancel("acme", slow)


def test_a_stop_does_not_begin_what_waits_behind_it(tmp_path: Path) -> None:
    with daemon(tmp_path, concurrency=1) as served:
        python(served, "work", BODY.replace("600", "1.5"))
        quick = add(served, "work", *(b"quick" for _ in range(60)))
        until(lambda: all(row(served, job_id).code == "ok" for job_id in quick))
        ids = add(served, "work", b"slow", *(b"quick" for _ in range(40)))
        until(lambda: (slow := served.engine.memory.get(ids[0])) is not None and slow.started)  # not only claimed
        served.stop()
        until(lambda: row(served, ids[0]).code == "ok")
        assert sum(row(served, job_id).attempt for job_id in ids[1:]) < 40


@pytest.mark.parametrize("lang", ["python", "http"])
def test_what_has_begun_cannot_be_withdrawn_and_what_has_not_never_begins(lang: str) -> None:
    contexts = Contexts(SETTINGS)
    body = "http://127.0.0.1:1/" if lang == "http" else "import time; time.sleep(0.01)"
    handler = Handler("1", "acme", "work", lang, body)
    tasks = [Task(str(n), b"", 1, 60.0) for n in range(60)]
    began: list[str] = []
    ended: list[str] = []
    withdrawn: list[str] = []
    first = threading.Event()

    def started(task: Task) -> None:
        began.append(task.id)
        first.set()

    def withdraw() -> None:
        first.wait(60)
        withdrawn.extend(task.id for task in reversed(tasks) if contexts.withdraw(task.id))

    thread = threading.Thread(target=withdraw)
    thread.start()
    try:
        left = contexts.run(handler, tasks, started, lambda report: _note(ended, report))
        thread.join(60)
        assert set(withdrawn) <= {task.id for task in left}
        assert sorted(began) == sorted(ended) == sorted({task.id for task in tasks} - {task.id for task in left})
        assert not any(contexts.withdraw(task.id) for task in tasks), "it is over"
    finally:
        contexts.close()


def _note(ended: list[str], report: Report) -> None:
    ended.append(report.id)
