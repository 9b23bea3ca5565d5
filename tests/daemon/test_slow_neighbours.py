"""A slow job holds up nobody but itself: neither those of its own batch nor other tenants'."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq.daemon.daemon import Daemon, Options
from hipq.sandbox import ContextJob, ContextPool, Handler, JobReport
from tests.daemon.working import SETTINGS, add, daemon, ended, python, row
from tests.engine.conftest import url
from tests.engine.working import until

__all__ = ["url"]

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


@pytest.mark.parametrize("quick", [0, 60], ids=["at once", "after quick ones"])
def test_sleepers_of_one_tenant_do_not_keep_another_waiting(url: str, tmp_path: Path, quick: int) -> None:
    """Forty that never return, at a daemon with as many hands as by default: the next tenant's job has ended within a
    second, and so have those of the one after it; also if they come one after the other."""
    with daemon(tmp_path, url, concurrency=Options().concurrency) as served:
        for tenant in ("acme", "other", "third"):
            python(served, "work", BODY, tenant=tenant)
            for job_id in add(served, "work", b"warm", *[b"quick"] * quick, tenant=tenant):
                ended(served, job_id)
        sleepers = add(served, "work", *[b"slow"] * 40)
        until(lambda: sum(one.run.started > 0 for one in served.engine.in_flight.values()) == Options().concurrency)
        took = []
        for tenant in ("other", "third") * 5:
            began = time.monotonic()
            (job_id,) = add(served, "work", b"x", tenant=tenant)
            ended(served, job_id)
            took.append(time.monotonic() - began)
        many = add(served, "work", *[b"quick"] * 200, tenant="other")
        until(lambda: all(row(served, job_id).code == "ok" for job_id in many))
        assert max(took) < 1.0, took
        assert sum(row(served, job_id).phase == "executing" for job_id in sleepers) >= Options().concurrency
        served.stop_now()


def test_what_fails_is_tried_again_while_another_tenant_has_every_hand(tmp_path: Path) -> None:
    """Its retry is decided on without a hand."""
    with daemon(tmp_path, concurrency=2) as served:
        python(served, "work", BODY)
        python(served, "work", "if job.attempt < 3: raise ValueError('not yet')\nreturn payload", tenant="other")
        add(served, "work", *[b"slow"] * 10)
        until(lambda: sum(one.run.started > 0 for one in served.engine.in_flight.values()) == 2)
        (job_id,) = add(served, "work", b"x", tenant="other")
        assert ended(served, job_id).code == "ok"
        served.stop_now()


def test_a_daemon_of_which_one_tenant_has_every_hand_rests(tmp_path: Path) -> None:
    """It does not look again and again for others: once a second or so."""
    with daemon(tmp_path, concurrency=2) as served:
        python(served, "work", BODY)
        add(served, "work", *[b"slow"] * 300)
        until(lambda: sum(one.run.started > 0 for one in served.engine.in_flight.values()) == 2)
        time.sleep(1.5)  # what was claimed ahead is given back
        turns = 0
        turn = served.engine.turn

        def counted() -> float:
            nonlocal turns
            turns += 1
            return turn()

        served.engine.turn = counted  # type: ignore[method-assign]
        time.sleep(2)
        assert turns < 60, turns
        served.stop_now()


def test_a_stop_does_not_begin_what_waits_behind_it(tmp_path: Path) -> None:
    with daemon(tmp_path, concurrency=1) as served:
        python(served, "work", BODY.replace("600", "1.5"))
        quick = add(served, "work", *(b"quick" for _ in range(60)))
        until(lambda: all(row(served, job_id).code == "ok" for job_id in quick))
        ids = add(served, "work", b"slow", *(b"quick" for _ in range(40)))
        until(
            lambda: (slow := served.engine.in_flight.get(ids[0])) is not None and slow.run.started
        )  # not just claimed
        served.stop()
        until(lambda: row(served, ids[0]).code == "ok")
        assert sum(row(served, job_id).attempt for job_id in ids[1:]) < 40


@pytest.mark.parametrize("lang", ["python", "http"])
def test_what_has_begun_cannot_be_withdrawn_and_what_has_not_never_begins(lang: str) -> None:
    contexts = ContextPool(SETTINGS)
    body = "http://127.0.0.1:1/" if lang == "http" else "import time; time.sleep(0.01)"
    handler = Handler("1", "acme", "work", lang, body)
    tasks = [ContextJob(str(n), b"", 1, 60.0) for n in range(60)]
    began: list[str] = []
    ended: list[str] = []
    withdrawn: list[str] = []
    first = threading.Event()

    def started(task: ContextJob) -> None:
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


def _note(ended: list[str], report: JobReport) -> None:
    ended.append(report.id)
