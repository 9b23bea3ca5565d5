"""What becomes of jobs in contexts: every status, every way a handler can end, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hipq.daemon import sandbox_executor as module
from hipq.daemon.daemon import Daemon
from hipq.daemon.tenancy.tenants import Quotas
from hipq.job.model import Change
from hipq.job.states import FINAL, RETRY, WAITING
from tests.daemon.working import add, daemon, ended, history, python, ran, row
from tests.engine.working import until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("hands")) as found:
        python(found, "status", "import json; status, data = json.loads(payload); return status, data", waits=True)
        yield found


def status(served: Daemon, code: int, data: str = "because", **options: Any) -> int:
    (job_id,) = add(served, "status", json.dumps([code, data]).encode(), **options)
    return job_id


def later_than(served: Daemon) -> int:
    return served.store.now() + 3_600_000_000


# -- statuses ---------------------------------------------------------------------------------------------------------
def test_2xx_is_ok_with_its_result(served: Daemon) -> None:
    found = ended(served, status(served, 201))
    assert (found.code, found.exitcode, served.jobs.result(found), found.attempt) == ("ok", 201, b"because", 1)


def test_4xx_has_failed_and_is_not_tried_again(served: Daemon) -> None:
    found = ended(served, status(served, 422))
    assert (found.code, found.exitcode, found.attempt) == ("failed", 422, 1)
    assert "because" in found.error


@pytest.mark.parametrize(("code", "kind"), [(100, "retry"), (199, "retry"), (503, "error")])
def test_1xx_and_5xx_are_tried_again(served: Daemon, code: int, kind: str) -> None:
    (job_id,) = add(served, "again", str(code).encode())
    python(served, "again", "return (int(payload), 'not yet') if job.attempt < 3 else 'at last'")
    found = ended(served, job_id)
    assert (found.code, found.exitcode, found.attempt) == ("ok", 200, 3)
    errors = [entry for entry in history(found) if entry["event"] in ("error", "again", "retry")]
    assert len(errors) >= 2, (kind, history(found))


def test_3xx_has_no_meaning_and_is_an_error(served: Daemon) -> None:
    job_id = status(served, 302)
    until(lambda: row(served, job_id).failures > 1)
    assert row(served, job_id).exitcode == 500
    served.jobs.cancel("acme", job_id)


def test_202_waits_for_its_answer(served: Daemon) -> None:
    job_id = status(served, 202, key="order-17")
    until(lambda: row(served, job_id).phase == WAITING)
    assert row(served, job_id).owner == 0
    assert served.jobs.answer("other", "status", "order-17", b"not yours") == "buffered"
    assert served.jobs.answer("acme", "status", "order-17", b"paid \xff") == "matched"
    found = ended(served, job_id)
    assert (found.code, served.jobs.result(found), found.attempt) == ("ok", b"paid \xff", 1)


def test_202_without_a_key_is_answered_by_its_id(served: Daemon) -> None:
    job_id = status(served, 202)
    assert served.jobs.answer("acme", "status", str(job_id), b"early or not") in ("matched", "buffered")
    assert served.jobs.result(ended(served, job_id)) == b"early or not"


def test_202_whose_answer_does_not_come_in_time_is_tried_again(served: Daemon) -> None:
    python(served, "patient", "return (202, '') if job.attempt == 1 else 'itself'", waits=True)
    (job_id,) = add(served, "patient", timeout=1.0)
    found = ended(served, job_id)
    assert (found.code, found.attempt, found.failures) == ("ok", 2, 1)
    assert ran(found)[:5] == ["claimed", "waits", "ran", "error", "again"]


def test_an_answer_that_is_an_error_is_tried_again(served: Daemon) -> None:
    python(served, "refused", "return (202, '') if job.attempt == 1 else 'itself'", waits=True)
    (job_id,) = add(served, "refused", key="k1")
    until(lambda: row(served, job_id).phase == WAITING)
    assert served.jobs.answer("acme", "refused", "k1", b'"no"', error=True) == "matched"
    assert ended(served, job_id).attempt == 2


# -- handlers that are missing, crash, hang ---------------------------------------------------------------------------
def test_jobs_without_a_handler_are_tried_until_there_is_one(served: Daemon) -> None:
    (job_id,) = add(served, "nobody")
    seen = []

    def waits_after_two() -> bool:  # while it runs for the third time, it has no error
        seen.append(row(served, job_id))
        return seen[-1].failures > 1 and seen[-1].state == RETRY

    until(waits_after_two)
    assert (seen[-1].exitcode, seen[-1].code) == (501, "error")
    assert "there is no handler for nobody" in seen[-1].error
    python(served, "nobody", "return 'somebody'")
    assert ended(served, job_id).code == "ok"


def test_jobs_without_a_handler_are_given_up_in_the_end(tmp_path: Path) -> None:
    with daemon(tmp_path, give_up_after=0.5) as served:
        (job_id,) = add(served, "nobody")
        found = ended(served, job_id)
        assert (found.code, found.exitcode) == ("error", 501)
        assert found.update_time >= found.create_time + 500_000
        errors = [entry["at"] for entry in history(found) if entry["event"] == "error"]
        assert found.attempt > 1 or errors[0] >= found.create_time + 400_000, "the first try may be as late as that"


def test_a_crash_is_an_error_that_is_tried_again_until_the_job_times_out(tmp_path: Path) -> None:
    with daemon(tmp_path, retry_after=0.2, give_up_after=3.0) as served:
        python(served, "poison", "import os\nif payload == 'poison': os.kill(os.getpid(), 9)\nreturn payload")
        some = [b"a", b"b", b"poison", b"c", b"d"] * 2
        some[7] = b"e"
        ids = add(served, "poison", *some)
        found = [ended(served, job_id) for job_id in ids]
    assert [one.code for one in found] == ["error" if payload == b"poison" else "ok" for payload in some]
    poison = found[2]
    assert poison.update_time >= poison.create_time + 2_700_000, "not after three crashes in a moment"
    crashes = [entry["at"] for entry in history(poison) if entry["event"] == "crashed"]
    assert poison.failures == poison.attempt >= 1
    assert all(after - before >= 200_000 for before, after in pairwise(crashes))
    for one in found[:2] + found[3:]:
        assert (one.failures, one.attempt) == (0, 1), "given back at no cost"


@pytest.mark.parametrize(
    ("body", "exitcode"),
    [
        ("import os; os._exit(9)", 509),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 511),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 509),
        ("import os; os._exit(0)", 500),
        ("import sys; sys.exit(65)", 465),
        ("import sys; sys.stdout.write('x' * (17 << 20))", 509),
    ],
)
def test_how_it_ended_is_its_exitcode_as_documented(tmp_path: Path, body: str, exitcode: int) -> None:
    with daemon(tmp_path, give_up_after=0.5) as served:
        python(served, "ends", body)
        found = ended(served, add(served, "ends")[0])
    assert found.exitcode == exitcode
    assert found.code == ("failed" if exitcode < 500 else "error")


def test_who_crashed_once_is_run_in_a_context_of_its_own(served: Daemon) -> None:
    body = "import os\nglobals().setdefault('seen', []).append(payload)\n"
    body += "if payload == 'once' and job.attempt == 1: os._exit(9)\nreturn str(len(seen))"
    python(served, "once", body)
    warm = add(served, "once", b"x", b"y", b"z")
    for job_id in warm:
        ended(served, job_id)
    (job_id,) = add(served, "once", b"once")
    found = ended(served, job_id)
    assert (found.code, served.jobs.result(found), found.attempt) == ("ok", b"1", 2)


def test_who_takes_longer_than_it_may_is_ended_with_504(tmp_path: Path) -> None:
    with daemon(tmp_path, run_timeout=1.0, give_up_after=0.5) as served:
        python(served, "slow", "import time\nif payload == 'slow': time.sleep(600)\nreturn payload")
        ids = add(served, "slow", b"quick", b"slow", b"after")
        found = [ended(served, job_id) for job_id in ids]
        assert [one.code for one in found] == ["ok", "error", "ok"]
        assert found[1].exitcode == 504
        assert found[2].failures == 0


def test_a_job_that_is_cancelled_is_killed(served: Daemon) -> None:
    python(served, "hang", "import time\nif payload == 'hang': time.sleep(600)\nreturn payload")
    (job_id,) = add(served, "hang", b"hang")
    until(lambda: job_id in served.engine.in_flight and served.engine.in_flight[job_id].run.started)
    served.jobs.cancel("acme", job_id, "enough")
    assert ended(served, job_id).code == "cancelled"
    until(lambda: job_id not in served.engine.in_flight)
    until(lambda: not served.contexts._jobs._stops)
    assert ended(served, add(served, "hang", b"next")[0]).code == "ok"


def test_a_daemon_that_stops_lets_jobs_finish_and_when_told_again_gives_them_back(tmp_path: Path) -> None:
    body = "import time\ntime.sleep(float(payload))\nreturn 'done'"
    with daemon(tmp_path) as served:
        python(served, "nap", body)
        (job_id,) = add(served, "nap", b"1.5")
        until(lambda: job_id in served.engine.in_flight and served.engine.in_flight[job_id].run.started)
        served.stop()
        served.stop()  # as often as one likes
    with daemon(tmp_path) as served:
        assert row(served, job_id).code == "ok", "it was let finish"
        (job_id,) = add(served, "nap", b"600")
        until(lambda: job_id in served.engine.in_flight and served.engine.in_flight[job_id].run.started)
        served.stop()
        served.stop_now()
    with daemon(tmp_path) as served:
        found = row(served, job_id)
        assert (found.failures, found.code) == (0, "NONE")
        assert "given back" in ran(found)
        served.jobs.cancel("acme", job_id)


# -- what they leave: jobs, logs --------------------------------------------------------------------------------------
def test_lines_with_a_j_become_jobs_of_the_same_tenant_with_the_outcome(served: Daemon) -> None:
    python(served, "parent", "print('J: child|first')\nprint('J: child|second')\nprint('a log line')\nreturn 'ok'")
    python(served, "child", "return payload.upper()")
    found = ended(served, add(served, "parent")[0])
    assert found.code == "ok"
    until(lambda: len(served.jobs.list("acme", type="child", state="final").rows) == 2)
    children = served.jobs.list("acme", type="child").rows
    assert sorted(served.jobs.result(row(served, one.id)) for one in children) == [b"FIRST", b"SECOND"]
    assert {(one.tenant, one.lane) for one in children} == {("acme", "acme/child")}


def test_after_an_error_there_are_no_new_jobs_and_after_failed_there_are(served: Daemon) -> None:
    python(served, "breaks", "print('J: orphan|x')\nreturn (500, '') if job.attempt < 3 else (400, 'no')")
    found = ended(served, add(served, "breaks")[0])
    assert (found.code, found.attempt) == ("failed", 3)
    until(lambda: served.jobs.list("acme", type="orphan").rows)
    assert len(served.jobs.list("acme", type="orphan").rows) == 1, "those of the attempts before went with their errors"
    for one in served.jobs.list("acme", type="orphan").rows:
        served.jobs.cancel("acme", one.id)


def test_a_handler_that_asks_for_more_jobs_than_there_is_room_for_is_tried_again_and_adds_them_once(
    tmp_path: Path,
) -> None:
    with daemon(tmp_path) as found:
        found.tenants.add("acme", quotas=Quotas(waiting=5))
        found.tenants.look()
        blockers = add(found, "blocker", *[b""] * 3, at=later_than(found))
        python(found, "parent", "for n in range(4): print(f'J: child|{n}')\nreturn 'ok'")
        (job_id,) = add(found, "parent")
        until(lambda: row(found, job_id).failures > 1)
        before = row(found, job_id)
        assert (before.state != FINAL, before.exitcode) == (True, 507)
        assert "the tenant's quota of 5 waiting jobs is used up" in before.error
        assert found.jobs.list("acme", type="child").rows == [], "nothing of it is saved"
        for one in blockers:
            found.jobs.cancel("acme", one)
        assert ended(found, job_id).code == "ok"
        assert len(found.jobs.list("acme", type="child").rows) == 4


def test_a_handler_that_asks_for_more_jobs_than_its_tenant_may_have_has_failed(tmp_path: Path) -> None:
    with daemon(tmp_path) as found:
        found.tenants.add("acme", quotas=Quotas(waiting=5, bytes=1000))
        found.tenants.look()
        python(found, "many", "for n in range(6): print('J: child|x')")
        python(found, "large", "print('J: child|' + 1001 * 'x')")
        many, large = (ended(found, add(found, name)[0]) for name in ("many", "large"))
        assert [(one.code, one.exitcode, one.attempt) for one in (many, large)] == [("failed", 413, 1)] * 2
        assert "it asked for 6 jobs, and the tenant's quota is 5" in many.error
        assert "it asked for 1,001 bytes" in large.error
        assert found.jobs.list("acme", type="child").rows == []


def test_then_follows_with_the_result_and_only_if_it_is_ok(served: Daemon) -> None:
    python(served, "shout", "return payload.upper()")
    python(served, "last", "return payload + b'!' if isinstance(payload, bytes) else payload + '!'")
    ended(served, add(served, "shout", b"hello", then="last")[0])
    until(lambda: [one for one in served.jobs.list("acme", type="last").rows if one.state == FINAL])
    (last,) = served.jobs.list("acme", type="last").rows
    assert served.jobs.result(row(served, last.id)) == b"HELLO!"
    ended(served, status(served, 400, then="last"))
    assert len(served.jobs.list("acme", type="last").rows) == 1


def test_then_follows_when_the_history_is_lost_and_when_the_job_is_run_again(served: Daemon) -> None:
    python(served, "shout", "return payload.upper()")
    (job_id,) = add(served, "shout", b"hello", then="kept", delay=3600)
    until(lambda: served.app.store.get(job_id))
    before = row(served, job_id)
    without = replace(before, history="[]", token=before.token + 1)
    assert not served.app.store.turn(0, [Change(before, without)], [], before.update_time).lost
    served.app.retry_now(job_id)
    ended(served, job_id)
    ended(served, served.app.jobs.requeue(job_id))
    until(lambda: len(served.jobs.list("acme", type="kept").rows) == 2)


def test_then_of_a_binary_result_and_without_a_handler(served: Daemon) -> None:
    python(served, "bytes", "return b'\\x00\\xff\\n'")
    ended(served, add(served, "bytes", then="unborn")[0])
    until(lambda: served.jobs.list("acme", type="unborn").rows)
    (found,) = served.jobs.list("acme", type="unborn").rows
    assert served.jobs.payload(row(served, found.id)) == b"\x00\xff\n"
    until(lambda: row(served, found.id).failures)
    assert row(served, found.id).exitcode == 501
    served.jobs.cancel("acme", found.id)


def test_then_follows_an_answer_too(served: Daemon) -> None:
    python(served, "receipt", "return 'sent for ' + payload")
    job_id = status(served, 202, key="then", then="receipt")
    until(lambda: row(served, job_id).phase == WAITING)
    assert served.jobs.answer("acme", "status", "then", b"order 9") == "matched"
    found = ended(served, job_id)
    assert (found.code, served.jobs.result(found)) == ("ok", b"order 9")
    until(lambda: [one for one in served.jobs.list("acme", type="receipt").rows if one.state == FINAL])
    (receipt,) = served.jobs.list("acme", type="receipt").rows
    assert served.jobs.result(row(served, receipt.id)) == b"sent for order 9"


def test_what_a_handler_prints_is_kept_on_its_job_within_bounds(served: Daemon) -> None:
    python(served, "chatty", "for n in range(5000): print('line', n)\nreturn (500, '') if job.attempt < 30 else 'ok'")
    found = ended(served, add(served, "chatty")[0])
    entries = [entry for entry in history(found) if entry["event"] == "ran"]
    assert entries
    assert entries[-1]["log"].rstrip().endswith("line 4999")
    assert all(len(entry["log"]) <= module.LOG and entry["cost"] > 0 for entry in entries)
    assert len(found.history) < 60 * (module.LOG + 500)
