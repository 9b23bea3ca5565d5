"""A daemon from start to stop: what it keeps, what it purges, what it says of itself, whose jobs are whose."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hipq.cli.main import run
from hipq.daemon import upkeep
from hipq.daemon.daemon import Daemon, Options
from hipq.daemon.handlers.policies import Policies
from hipq.daemon.upkeep import Upkeep
from hipq.errors import DuplicateKey, HipqError, Invalid, JournalError, NotFound, StoreUnavailable
from hipq.job.model import sequence_of
from hipq.job.states import EXECUTING, SCHEDULED, WAITING
from hipq.journal import Batch
from hipq.stores.claims import Turned
from tests.daemon.working import add, daemon, ended, made, python, refuse, row
from tests.engine.conftest import url
from tests.engine.working import until

__all__ = ["url"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("daemon")) as found:
        python(found, "echo", "return payload")
        yield found


def test_what_was_acknowledged_is_there_after_every_restart(url: str, tmp_path: Path) -> None:
    ids: list[int] = []
    for n in range(3):
        with daemon(tmp_path, url) as served:
            python(served, "echo", "return payload")
            ids += add(served, "echo", *(f"{n}.{m}".encode() for m in range(20)))
            ids += add(served, "echo", b"later", delay=0.05)
            if n == 1:
                ids += add(served, "unborn", b"x")
            ended(served, ids[0])
    with daemon(tmp_path, url) as served:
        python(served, "unborn", "return payload")
        for job_id in ids:
            found = ended(served, job_id)
            assert found.code == "ok"
            assert served.jobs.result(found) == served.jobs.payload(found)
    assert len(set(ids)) == len(ids) == 64


def test_what_is_in_the_journal_when_it_stops_is_taken_in_at_the_next_start(tmp_path: Path) -> None:
    served = made(tmp_path)  # not started: as if it was killed before it took anything in
    ids = add(served, "echo", b"a", b"b")
    served.close()
    with daemon(tmp_path) as served:
        python(served, "echo", "return payload")
        assert [served.jobs.result(ended(served, job_id)) for job_id in ids] == [b"a", b"b"]


def test_a_journal_has_one_daemon_and_who_cannot_start_leaves_nothing_open(tmp_path: Path) -> None:
    with daemon(tmp_path) as served:
        with pytest.raises(HipqError):
            made(tmp_path)
        with pytest.raises(Invalid, match="cannot be written"):
            made(tmp_path, journal=str(tmp_path / "other"), job_log=str(tmp_path / "no" / "such.jsonl"))
        python(served, "echo", "return payload")
        assert ended(served, add(served, "echo", b"x")[0]).code == "ok"
    with daemon(tmp_path, journal=str(tmp_path / "other")):
        pass  # its lock was let go


def test_what_has_ended_is_purged_after_a_while_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "PRUNE_SECONDS", 0.05)
    monkeypatch.setattr(upkeep, "TIDY_SECONDS", 0.05)
    seen, purge = threading.Event(), Upkeep.purge
    monkeypatch.setattr(Upkeep, "purge", lambda self, stopping: purge(self, stopping) if seen.is_set() else None)
    with daemon(tmp_path, keep=0.2) as served:
        python(served, "echo", "return payload")
        (gone,) = add(served, "echo", b"x")
        (stays,) = add(served, "echo", b"y", delay=3600)
        assert ended(served, gone).code == "ok"
        seen.set()
        until(lambda: served.store.get(gone) is None)
        assert row(served, stays).phase == SCHEDULED
        with pytest.raises(NotFound):
            served.jobs.get("acme", gone)


def test_jobs_that_the_database_refuses_are_said_and_those_behind_them_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with daemon(tmp_path) as served:
        python(served, "echo", "return payload")
        (first,) = add(served, "echo", b"a")
        ended(served, first)
        served.journal.write_now(Batch("acme", "echo", sequence_of(first), (b"bad",), 1))
        (second,) = add(served, "echo", b"b")
        assert served.jobs.result(ended(served, second)) == b"b"
        assert served.jobs.result(ended(served, first)) == b"a"
        assert served.health() == "refused"
        until(lambda: "the database has refused the job" in caplog.text)
    with daemon(tmp_path) as served:
        assert served.health() == "refused", "until somebody has looked after it"


def test_jobs_that_came_together_with_one_that_is_refused_run(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served = made(tmp_path, url)
    refuse(served.store, url, "poison")
    ids = [add(served, "echo", b"a", b"poison", b"b", tenant=tenant) for tenant in ("acme", "bcme")]
    ids.append(add(served, "echo", b"a", b"b", tenant="ccme"))
    served.close()
    with daemon(tmp_path, url) as served:
        for tenant in ("acme", "bcme", "ccme"):
            python(served, "echo", "return payload", tenant=tenant)
        for first, *_, last in ids:
            assert [served.jobs.result(ended(served, job_id)) for job_id in (first, last)] == [b"a", b"b"]
        assert [served.store.get(some[1]) for some in ids[:2]] == [None, None]
        assert served.health() == "refused"
        assert run(["journal", "check", str(tmp_path / "journal"), "--json"]) == 1
        found = msgspec.json.decode(capsys.readouterr().out)["found"]
        for some, one in zip(ids[:2], found, strict=True):
            assert f"the job {some[1]} of " in one["why"]
            assert "picky" in one["why"]
        assert run(["journal", "show", str(tmp_path / "journal"), "--refused", "--json"]) == 0
        shown = msgspec.json.decode(capsys.readouterr().out)
        assert [(one["tenant"], one["jobs"]) for one in shown] == [
            (tenant, [{"number": sequence_of(some[1]), "text": "poison"}])
            for tenant, some in zip(("acme", "bcme"), ids[:2], strict=True)
        ]


def test_health_says_how_it_is(tmp_path: Path) -> None:
    with daemon(tmp_path) as served:
        assert served.health() == "ok"
        served._ingest.away = "the database is away"
        assert served.health() == "store away"
        served._ingest.away, served._ingest.stuck = "", "it takes nothing"
        assert served.health() == "stuck"
        served._ingest.stuck = ""
        served._ingest.away = ""
        served.failed = "the engine ended"
        assert served.health() == "broken"
        served.failed = ""
    served = made(tmp_path, journal_bytes=4_000)
    try:
        add(served, "echo", b"x" * 2_500)
        assert served.health() == "behind"
    finally:
        served.close()


def test_an_engine_that_ends_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    served = made(tmp_path)

    def broken() -> float:
        raise RuntimeError("a bug")

    served.engine.turn = broken  # type: ignore[method-assign]
    served.start()
    until(lambda: served.failed)
    assert served.failed == "the engine ended: a bug"
    assert served.health() == "broken"
    until(lambda: "the engine ended" in caplog.text)
    served.stop()
    served.close()


def test_outcomes_are_kept_while_the_store_is_away(tmp_path: Path) -> None:
    """A job that ends then has ended: it is saved when the store is back, and does not run again."""
    with daemon(tmp_path) as served:
        python(served, "work", "print('J: child|x')\nreturn 'once'")
        store, away = served.store, threading.Event()
        real, real_now = store.turn, store.now

        def failing(call: Callable[..., Any]) -> Callable[..., Any]:
            def verb(*arguments: Any, **named: Any) -> Any:
                if away.is_set():
                    raise StoreUnavailable("the database is away")
                found = call(*arguments, **named)
                if isinstance(found, Turned) and found.won:  # from when it has claimed the job on
                    away.set()
                return found

            return verb

        store.turn, store.now = failing(store.turn), failing(store.now)  # type: ignore[method-assign]
        (job_id,) = add(served, "work", then="child")
        until(lambda: job_id in served.engine.in_flight and served.engine.in_flight[job_id].run.result)
        assert away.is_set()
        store.turn, store.now = real, real_now  # type: ignore[method-assign]
        found = ended(served, job_id)
        assert (found.code, found.attempt, found.failures) == ("ok", 1, 0)
        until(lambda: len(served.jobs.list("acme", type="child").rows) == 2)


# -- whose jobs are whose ---------------------------------------------------------------------------------------------
VERBS: dict[str, Callable[[Daemon, str, int], Any]] = {
    "get": lambda served, tenant, job_id: served.jobs.get(tenant, job_id),
    "why": lambda served, tenant, job_id: served.jobs.why(tenant, job_id),
    "cancel": lambda served, tenant, job_id: served.jobs.cancel(tenant, job_id),
    "retry": lambda served, tenant, job_id: served.jobs.retry(tenant, job_id),
    "result_of": lambda served, tenant, job_id: asyncio.run(served.jobs.result_of(tenant, job_id, 0)),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_job_of_another_tenant_does_not_exist(served: Daemon, verb: str) -> None:
    (job_id,) = add(served, "echo", b"secret", delay=3600, key=f"key-{verb}")
    before = row(served, job_id)
    with pytest.raises(NotFound) as theirs:
        VERBS[verb](served, "other", job_id)
    with pytest.raises(NotFound) as nobodys:
        VERBS[verb](served, "other", job_id + (1 << 20))
    assert str(theirs.value).replace(str(job_id), "") == str(nobodys.value).replace(str(job_id + (1 << 20)), "")
    assert row(served, job_id) == before
    VERBS[verb](served, "acme", job_id)


def test_lists_and_lanes_show_only_ones_own(served: Daemon) -> None:
    mine = add(served, "mine", b"x", tenant="acme", delay=3600)
    theirs = add(served, "mine", b"x", tenant="other", delay=3600)
    until(lambda: served.store.get(theirs[0]))
    assert [one.id for one in served.jobs.list("acme", type="mine").rows] == mine
    assert [one.id for one in served.jobs.list("other", type="mine").rows] == theirs
    assert served.jobs.list("nobody").rows == []
    assert served.jobs.list("acme", key=str(theirs[0])).rows == []


def test_the_same_key_of_two_tenants_is_two_keys_and_answers_find_their_own(served: Daemon) -> None:
    python(served, "ask", "return 202, ''", waits=True)
    python(served, "ask", "return 202, ''", tenant="other", waits=True)
    (mine,) = add(served, "ask", key="k")
    (theirs,) = add(served, "ask", key="k", tenant="other")
    with pytest.raises(DuplicateKey):
        add(served, "ask", key="k")
    until(lambda: row(served, mine).phase == row(served, theirs).phase == WAITING)
    assert served.jobs.answer("other", "ask", "k", b"for the other") == "matched"
    assert served.jobs.result(ended(served, theirs)) == b"for the other"
    assert row(served, mine).phase == WAITING
    assert served.jobs.answer("acme", "ask", "k", b"for me") == "matched"
    assert served.jobs.result(ended(served, mine)) == b"for me"


# -- as the seed shows it ---------------------------------------------------------------------------------------------
def test_a_job_is_seen_as_the_seed_shows_it(served: Daemon) -> None:
    (job_id,) = add(served, "echo", b"data", delay=3600)
    seen = served.jobs.seen(row(served, job_id))
    assert set(seen) == {"id", "type", "dt", "lock", "data", "create_dt", "done_dt"}
    assert (seen["id"], seen["type"], seen["data"]) == (str(job_id), "echo", "data")
    assert (seen["lock"], seen["done_dt"]) == ("", None)
    starts, created = (datetime.fromisoformat(seen[name]) for name in ("dt", "create_dt"))
    assert starts - created == timedelta(hours=1)
    python(served, "slow", "import time\ntime.sleep(600)")
    (job_id,) = add(served, "slow", b"\xff", timeout=7200)
    until(lambda: row(served, job_id).phase == EXECUTING)
    seen = served.jobs.seen(row(served, job_id))
    assert seen["lock"] == str(served.engine.engine_id)
    assert (seen["data"], seen["data_base64"]) == (None, "/w==")
    timed_out = datetime.fromisoformat(seen["dt"]) - datetime.fromisoformat(seen["create_dt"])
    assert timedelta(hours=1) <= timed_out < timedelta(hours=2), "its run's, not that of its wait for an answer"
    seen = served.jobs.seen(served.jobs.cancel("acme", job_id))
    archived, done = (datetime.fromisoformat(seen[name]) for name in ("dt", "done_dt"))
    assert (seen["lock"], archived) == ("__done", done.replace(year=done.year + 1000))


def test_every_type_has_a_spec_and_no_more_are_remembered_than_need_be() -> None:
    specs = Policies(Options(run_timeout=5, give_up_after=7))
    assert (specs["a"].name, specs["a"].run_timeout, specs["a"].lifetime) == ("a", 5, 7)
    assert "whatever" in specs
    assert specs.get("b") is specs["b"]
    for n in range(25_000):
        assert specs[str(n)].name == str(n)
    assert len(specs._specs) <= 10_001, "what tenants make up is not kept for ever"


def test_a_journal_that_is_closed_accepts_nothing(tmp_path: Path) -> None:
    served = made(tmp_path)
    served.close()
    with pytest.raises(JournalError):
        add(served, "echo", b"x")


def test_why_a_job_does_not_run_is_told(served: Daemon) -> None:
    (job_id,) = add(served, "echo", b"x", delay=3600, key="why")
    assert served.jobs.why("acme", job_id)
    assert served.jobs.usage()["acme"][0] >= 1
