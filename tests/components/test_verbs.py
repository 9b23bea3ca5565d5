"""The verbs of hipq.components, one test each, on both stores; a job's dates and lock as the first design has them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hipq.components import RETRY_SECONDS, Components, Runner, Scheduler
from hipq.daemon.daemon import Daemon
from hipq.daemon.scheduler import FairShare
from hipq.errors import Invalid, NotFound
from tests.daemon.working import add, daemon, ended, made, python, row
from tests.engine.conftest import url
from tests.engine.working import until

__all__ = ["url"]


@pytest.fixture
def parts(url: str, tmp_path: Path) -> Iterator[Components]:
    """Of a daemon that was not started: what it would do is done by the verbs."""
    found = made(tmp_path, url)
    yield Components(found)
    found.close()


@pytest.fixture
def locking(parts: Components) -> Components:
    parts.state.reserve_sysid("test", seconds=600)
    return parts


def stored(parts: Components, jobtype: str, *lines: str) -> list[str]:
    ids = parts.journal.write(jobtype, lines)
    parts.journal.wsync()
    parts.journal.ingest()
    return ids


class Told:
    """A callback that can be waited for."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._said: tuple[Any, ...] = ()

    def __call__(self, *said: Any) -> None:
        self._said = said
        self._event.set()

    @property
    def said(self) -> tuple[Any, ...]:
        assert self._event.wait(60)
        return self._said


# -- journal ----------------------------------------------------------------------------------------------------------
def test_write(parts: Components) -> None:
    told = Told()
    ids = parts.journal.write("acme-re-size", ["one\n", b"two\n"], told)
    assert told.said == (None,)
    assert parts.journal.write("acme-re-size", []) == []
    assert parts.journal.ingest() == 2
    assert [parts.daemon.jobs.payload(row(parts.daemon, int(one))) for one in ids] == [b"one", b"two"]
    assert row(parts.daemon, int(ids[0])).lane == "acme/re-size"


@pytest.mark.parametrize(
    ("jobtype", "lines"),
    [
        ("resize", ["x\n"]), ("acme-", ["x\n"]), ("-resize", ["x\n"]), ("v1-resize", ["x\n"]), ("a/b-resize", ["x\n"]),
        ("acme-re,size", ["x\n"]), ("acme-resize", ["x"]), ("acme-resize", ["x\ny\n"]), ("acme-resize", ["x\n", ""]),
    ],
)  # fmt: skip
def test_write_refuses_what_could_not_be_read_back(parts: Components, jobtype: str, lines: list[str]) -> None:
    with pytest.raises(Invalid):
        parts.journal.write(jobtype, lines)
    assert parts.journal.read_reserve(10, 1000) is None, "nothing of it was written"


def test_wsync(parts: Components) -> None:
    parts.journal.write("acme-resize", ["1\n"])
    told = Told()
    parts.journal.wsync(told)
    assert told.said == (None,)
    parts.journal.wsync()
    assert parts.daemon.journal.waiting_jobs == 1


def test_read_reserve(parts: Components) -> None:
    assert parts.journal.read_reserve(10, 60_000) is None
    parts.journal.write("acme-resize", ["1\n", "2\n"])
    parts.journal.wsync()
    assert parts.journal.read_reserve(10, 60_000) is not None
    assert parts.journal.read_reserve(10, 60_000) is None, "they are somebody's"


def test_what_is_not_read_in_time_is_reserved_again(parts: Components) -> None:
    parts.journal.write("acme-resize", ["1\n"])
    parts.journal.wsync()
    assert parts.journal.read_reserve(10, 1) is not None
    until(lambda: parts.journal.read_reserve(10, 60_000) is not None)


def test_read(parts: Components) -> None:
    parts.journal.write("acme-resize", ["1\n", "a|b\n"])
    parts.journal.wsync()
    token = parts.journal.read_reserve(10, 60_000)
    assert token
    lines = parts.journal.read(token)
    assert lines
    stamps, jobtypes, payloads = zip(*(line.split(b"|", 2) for line in lines), strict=True)
    assert (jobtypes, payloads) == ((b"acme-resize",) * 2, (b"1\n", b"a|b\n"))
    assert all(datetime.fromisoformat(stamp.decode()).tzinfo for stamp in stamps)
    told = Told()
    parts.journal.read(token, told)
    assert told.said == (None, lines)


def test_rsync(parts: Components) -> None:
    parts.journal.write("acme-resize", ["1\n"])
    parts.journal.wsync()
    token = parts.journal.read_reserve(10, 1)
    assert token
    parts.journal.read(token)
    parts.journal.rsync(token)
    assert parts.daemon.journal.waiting_jobs == 0
    told = Told()
    parts.journal.read(token, told)
    error, lines = told.said
    assert error is not None
    assert lines is None


# -- store: tasks -----------------------------------------------------------------------------------------------------
def test_set_handler(parts: Components) -> None:
    found = parts.store.set_handler("acme-resize", "python", "return 1")
    assert (found.tenant, found.type, found.lang, found.body) == ("acme", "resize", "python", "return 1")
    with pytest.raises(Invalid):
        parts.store.set_handler("acme-resize", "cobol", "x")
    for name in ("resize", "-resize", "acme-", ""):
        with pytest.raises(Invalid, match="tenant-jobtype"):
            parts.store.set_handler(name, "python", "return 1")


def test_get_handler(parts: Components) -> None:
    assert parts.store.get_handler("acme-resize") is None
    parts.store.set_handler("acme-resize", "python", "return 1")
    parts.store.set_handler("acme-resize", "python", "return 2")
    found = parts.store.get_handler("acme-resize")
    assert found
    assert found.body == "return 2", "the newest"
    assert parts.store.get_handler("other-resize") is None
    parts.store.set_handler("acme-re-size", "python", "return 3")
    assert parts.store.get_handler("acme-re-size"), "a jobtype may have a dash, a tenant has none"


def test_delete_handler(parts: Components) -> None:
    parts.store.set_handler("acme-resize", "python", "return 1")
    parts.store.delete_handler("acme-resize")
    assert parts.store.get_handler("acme-resize") is None
    with pytest.raises(NotFound):
        parts.store.delete_handler("acme-resize")


# -- store: jobs ------------------------------------------------------------------------------------------------------
def test_get_waiting_jobtypes(parts: Components) -> None:
    assert parts.store.get_waiting_jobtypes() == ([], {})
    stored(parts, "acme-resize", "1\n", "2\n", "3\n")
    stored(parts, "other-mail-out", "1\n")
    add(parts.daemon, "later", b"1", delay=3600)
    parts.journal.ingest()
    types, counts = parts.store.get_waiting_jobtypes()
    assert sorted(types) == ["acme-resize", "other-mail-out"]
    assert counts == {"acme-resize": 3, "other-mail-out": 1}


def test_get_waiting_jobs(locking: Components) -> None:
    ids = stored(locking, "acme-resize", "1\n", "2\n", "3\n")
    lock = str(locking.state.sysid)
    found = locking.store.get_waiting_jobs("acme-resize", 2)
    assert [(one["id"], one["data"], one["lock"]) for one in found] == [(ids[0], "1", lock), (ids[1], "2", lock)]
    assert [one["id"] for one in locking.store.get_waiting_jobs("acme-resize", 10)] == ids[2:], "not eligible any more"
    assert locking.store.get_waiting_jobs("other-resize", 10) == []
    stored(locking, "acme-resize", "4\n")
    nobody = Components(locking.daemon)
    assert nobody.store.get_waiting_jobs("acme-resize", 10) == [], "without a sysid nothing can be locked"


def test_dt_of_a_job_that_runs_is_its_run_time_out(locking: Components) -> None:
    stored(locking, "acme-resize", "1\n")
    (job,) = locking.store.get_waiting_jobs("acme-resize", 1)
    claimed = row(locking.daemon, int(job["id"])).update_time
    assert datetime.fromisoformat(job["dt"]).timestamp() == pytest.approx(claimed / 1e6 + 3600)


def test_release_jobs_retry(locking: Components) -> None:
    (job_id,) = stored(locking, "acme-resize", "1\n")
    locking.store.get_waiting_jobs("acme-resize", 1)
    assert locking.store.release_jobs([job_id], "retry") == 1
    found = row(locking.daemon, int(job_id))
    assert (found.state, found.owner, found.attempt) == ("retry", 0, 1)
    assert found.scheduled_run_time - found.update_time == RETRY_SECONDS * 1e6
    assert locking.store.get_waiting_jobs("acme-resize", 1) == []


def test_release_jobs_unget(locking: Components) -> None:
    (job_id,) = stored(locking, "acme-resize", "1\n")
    locking.store.get_waiting_jobs("acme-resize", 1)
    assert locking.store.release_jobs([job_id], "unget") == 1
    assert locking.store.release_jobs([job_id], "unget") == 0, "it is not ours any more"
    assert [one["id"] for one in locking.store.get_waiting_jobs("acme-resize", 1)] == [job_id], "as soon as possible"


def test_release_jobs_archive(locking: Components) -> None:
    ids = stored(locking, "acme-resize", "1\n", "2\n")
    locking.store.get_waiting_jobs("acme-resize", 2)
    assert locking.store.release_jobs([*ids, "17", "no number"], "archive") == 2
    for job_id in ids:
        seen = locking.daemon.jobs.seen(row(locking.daemon, int(job_id)))
        dt, done = (datetime.fromisoformat(seen[name]) for name in ("dt", "done_dt"))
        assert seen["lock"] == "__done"
        assert dt == done.replace(year=done.year + 1000), "a thousand years later"
    assert locking.store.get_waiting_jobtypes() == ([], {})
    with pytest.raises(Invalid, match="retry, unget, archive"):
        locking.store.release_jobs(ids, "burn")


# -- state ------------------------------------------------------------------------------------------------------------
def test_reserve_sysid(parts: Components) -> None:
    told = Told()
    first = parts.state.reserve_sysid("a")
    second = parts.state.reserve_sysid("b", told)
    assert told.said == (None, second)
    assert first != second == parts.state.sysid


def test_renew_sysid(locking: Components) -> None:
    sysid, told = locking.state.sysid, Told()
    assert locking.state.renew_sysid(sysid, told, seconds=600)
    assert told.said == (None, True)
    assert not locking.state.renew_sysid(sysid + 1000)
    locking.state.release_sysid(sysid)
    assert not locking.state.renew_sysid(sysid), "what is over cannot be renewed"


def test_release_sysid(locking: Components) -> None:
    (job_id,) = stored(locking, "acme-resize", "1\n")
    locking.store.get_waiting_jobs("acme-resize", 1)
    told, store = Told(), locking.daemon.store
    locking.state.release_sysid(locking.state.sysid, told)
    assert told.said == (None, None)
    assert [one.id for one in store.owned([locking.daemon.queue.number], None, 10)] == [int(job_id)], (
        "others reset its lock"
    )
    assert locking.store.get_waiting_jobs("acme-resize", 1) == []


def test_jobs_of_a_state(locking: Components) -> None:
    ids = stored(locking, "acme-re-size", *(f"{n}\n" for n in range(6)))
    add(locking.daemon, "re-size", b"1", delay=3600)
    locking.journal.ingest()
    locking.store.get_waiting_jobs("acme-re-size", 3)
    locking.store.release_jobs(ids[:1], "archive")
    locking.store.release_jobs(ids[1:2], "retry")
    assert locking.state.jobs("acme") == {
        "acme-re-size": {"waiting": 3, "scheduled": 1, "running": 1, "retrying": 1, "done": 1}
    }
    assert locking.state.jobs("other") == {}


# -- scheduler --------------------------------------------------------------------------------------------------------
def test_select_jobtype_to_run() -> None:
    scheduler = Scheduler()
    assert scheduler.select_jobtype_to_run(["a-x-y"]) == "a-x-y", "counts are optional"
    assert scheduler.select_jobtype_to_run(["a-x"], {"a-x": 3, "gone-x": 7}) == "a-x"
    assert scheduler.select_jobtype_to_run([]) is None
    with pytest.raises(Invalid):
        scheduler.select_jobtype_to_run(["x"])


def test_jobs_started() -> None:
    scheduler = Scheduler()
    scheduler.jobs_started("a-x", 100)
    assert scheduler.select_jobtype_to_run(["a-x", "b-x"]) == "b-x"


def test_jobs_stopped() -> None:
    scheduler = Scheduler(weight=lambda tenant: 2.0 if tenant == "a" else 1.0)
    for jobtype in ("a-x", "b-x"):
        scheduler.jobs_started(jobtype, 3)
        scheduler.jobs_stopped(jobtype, 3)
    assert scheduler.select_jobtype_to_run(["a-x", "b-x"]) == "a-x", "its share is twice as large"


def test_contexts_warm() -> None:
    scheduler = Scheduler()
    for _ in range(2):
        scheduler.select_jobtype_to_run(["a-cold", "a-warm"])
    assert scheduler.select_jobtype_to_run(["a-cold", "a-warm"]) == "a-cold", "served longest ago"
    assert scheduler.select_jobtype_to_run(["a-cold", "a-warm"]) == "a-warm"
    scheduler.contexts_warm(["a-warm"])
    chosen = [scheduler.select_jobtype_to_run(["a-cold", "a-warm"]) for _ in range(30)]
    assert chosen[0] == "a-warm"
    assert "a-cold" in chosen[:10], "and is held up no longer than that"


# -- results ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("components")) as found:
        yield found


def test_get_of_results(served: Daemon) -> None:
    results = Components(served).results
    python(served, "gives", "return int(payload), 'said'")
    ids = add(served, "gives", b"201", b"404")
    for job_id in ids:
        ended(served, job_id)
    good, bad = (results.get(str(job_id)) for job_id in ids)
    assert good
    assert bad
    assert (good.code, good.exitcode, good.data) == ("ok", 201, b"said")
    assert (bad.code, bad.exitcode) == ("failed", 404)
    assert results.get(str(ids[0] + (1 << 40))) is None
    with pytest.raises(Invalid):
        results.get("x")


def test_exitcodes_of_results(served: Daemon) -> None:
    results = Components(served).results
    python(served, "codes", "return int(payload), ''", tenant="codes")
    ids = add(served, "codes", b"200", b"204", b"410", tenant="codes")
    for job_id in ids:
        ended(served, job_id)
    assert list(results.exitcodes("codes")) == list(zip(map(str, ids), (200, 204, 410), strict=True))


# -- runner -----------------------------------------------------------------------------------------------------------
def test_get_running_jobs(served: Daemon) -> None:
    runner = Runner(served)
    python(served, "nap", "import time\ntime.sleep(600)")
    (job_id,) = add(served, "nap", b"x")
    until(lambda: [one["id"] for one in runner.get_running_jobs()] == [str(job_id)])
    (seen,) = runner.get_running_jobs()
    assert seen["lock"] == str(served.engine.engine_id)
    claimed = datetime.fromtimestamp(row(served, job_id).update_time / 1e6).astimezone()
    left = datetime.fromisoformat(seen["dt"]) - claimed
    assert abs(left - timedelta(hours=1)) < timedelta(seconds=1), "when its run times out"
    served.jobs.cancel("acme", job_id)
    until(lambda: runner.get_running_jobs() == [])


def test_get_stopped_jobs(served: Daemon) -> None:
    runner = Runner(served)
    python(served, "ends", "return int(payload) if job.attempt == 1 else 200, ''")
    ids = add(served, "ends", b"200", b"404", b"500", b"102")
    for job_id in ids:
        ended(served, job_id)
    until(lambda: len(runner._stopped) >= 6)
    codes = {(one["id"], one["code"], one["exitcode"]) for one in runner.get_stopped_jobs()}
    expected = {(n, "ok", 200) for n in (0, 2, 3)} | {(1, "failed", 404), (2, "error", 500), (3, "retry", 102)}
    assert codes == {(str(ids[n]), code, exitcode) for n, code, exitcode in expected}
    assert runner.get_stopped_jobs() == [], "each is told once"


def test_get_warm_jobtypes(served: Daemon) -> None:
    runner = Runner(served)
    python(served, "wa-rm", "return 'ok'")
    (job_id,) = add(served, "wa-rm", b"x")
    ended(served, job_id)
    until(lambda: "acme-wa-rm" in runner.get_warm_jobtypes())


class Listening:
    """A scheduler of somebody else's that hears the runner's hints."""

    def __init__(self) -> None:
        self.heard: list[set[str]] = []

    def select_jobtype_to_run(self, jobtypes: list[str], jobcounts: dict[str, int]) -> str | None:  # noqa: ARG002
        return jobtypes[0]

    def jobs_started(self, jobtype: str, count: int) -> None: ...
    def jobs_stopped(self, jobtype: str, count: int) -> None: ...
    def contexts_warm(self, jobtypes: set[str]) -> None:
        self.heard.append(set(jobtypes))


def test_the_runners_hints_are_heard_by_a_scheduler_of_ones_own(tmp_path: Path) -> None:
    scheduler = Listening()
    with daemon(tmp_path, scheduler=scheduler) as served:
        python(served, "work", "return 'ok'")
        for _ in range(2):
            ended(served, add(served, "work", b"x")[0])
            until(lambda: served.warm() == {"acme/work"})
    assert scheduler.heard[0] == set(), "nothing had run yet"
    assert {"acme/work"} in scheduler.heard, "when the second was chosen; later its context may be busy"


def test_the_runners_hints_are_heard_by_the_daemons_own_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Collection[str]] = []
    monkeypatch.setattr(FairShare, "contexts_warm", lambda _, lanes: heard.append(lanes))
    with daemon(tmp_path) as served:
        python(served, "work", "return 'ok'")
        for _ in range(2):
            ended(served, add(served, "work", b"x")[0])
            until(lambda: served.warm() == {"acme/work"})
    assert {"acme/work"} in heard


def test_the_total_of_tasks_of_a_context_is_limited(tmp_path: Path) -> None:
    from msgspec.structs import replace

    from tests.daemon.working import SETTINGS

    with daemon(tmp_path, contexts=replace(SETTINGS, most_tasks=3), concurrency=1) as served:
        python(served, "pid", "import os\nreturn str(os.getpid()) + ' ' + open('/proc/self/stat').read().split()[21]")
        who = []
        for _ in range(7):
            (job_id,) = add(served, "pid", b"x")
            who.append(served.jobs.result(ended(served, job_id)))
    assert [who.count(one) for one in dict.fromkeys(who)] == [3, 3, 1]
