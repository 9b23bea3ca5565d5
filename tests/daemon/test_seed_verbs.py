"""The verbs of seed 003, one test each, on both stores. (Those of the journal are in tests/journal.)"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq.daemon.components import RETRY_SECONDS, SeedRunner, SeedStore
from hipq.daemon.daemon import Daemon
from hipq.daemon.scheduler import FairShare
from hipq.errors import Invalid, NotFound
from tests.daemon.working import add, daemon, ended, made, python, row
from tests.engine.conftest import url
from tests.engine.working import until

__all__ = ["url"]


@pytest.fixture
def still(url: str, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose engine does not work: what it would do is done by the verbs."""
    found = made(tmp_path, url)
    found._ingest.start()
    yield found
    found.close()


@pytest.fixture
def store(still: Daemon) -> SeedStore:
    found = SeedStore(still.store, still.queue.number, still.jobs, still.handlers)
    found.reserve_sysid("test", 600)
    return found


def there(still: Daemon, *ids: int) -> list[str]:
    for job_id in ids:
        row(still, job_id)
    return [str(job_id) for job_id in ids]


def test_set_handler(store: SeedStore) -> None:
    made = store.set_handler("acme-resize", "python", "return 1")
    assert (made.tenant, made.type, made.lang, made.body) == ("acme", "resize", "python", "return 1")
    with pytest.raises(Invalid):
        store.set_handler("acme-resize", "cobol", "x")
    for name in ("resize", "-resize", "acme-", ""):
        with pytest.raises(Invalid, match="tenant-jobtype"):
            store.set_handler(name, "python", "return 1")


def test_get_handler(store: SeedStore) -> None:
    assert store.get_handler("acme-resize") is None
    store.set_handler("acme-resize", "python", "return 1")
    store.set_handler("acme-resize", "python", "return 2")
    found = store.get_handler("acme-resize")
    assert found
    assert found.body == "return 2", "the newest"
    assert store.get_handler("other-resize") is None
    store.set_handler("acme-re-size", "python", "return 3")
    assert store.get_handler("acme-re-size"), "a jobtype may have a dash, a tenant has none"


def test_delete_handler(store: SeedStore) -> None:
    store.set_handler("acme-resize", "python", "return 1")
    store.delete_handler("acme-resize")
    assert store.get_handler("acme-resize") is None
    with pytest.raises(NotFound):
        store.delete_handler("acme-resize")


def test_get_waiting_jobtypes(still: Daemon, store: SeedStore) -> None:
    assert store.get_waiting_jobtypes() == ([], {})
    some = add(still, "resize", b"1", b"2", b"3") + add(still, "mail-out", b"1", tenant="other")
    later = add(still, "later", b"1", delay=3600)
    there(still, *some, *later)
    types, counts = store.get_waiting_jobtypes()
    assert sorted(types) == ["acme-resize", "other-mail-out"]
    assert counts == {"acme-resize": 3, "other-mail-out": 1}


def test_get_waiting_jobs(still: Daemon, store: SeedStore) -> None:
    ids = there(still, *add(still, "resize", b"1", b"2", b"3"))
    found = store.get_waiting_jobs("acme-resize", 2)
    assert [(one["id"], one["data"], one["lock"]) for one in found] == [
        (ids[0], "1", str(store.engine_id)),
        (ids[1], "2", str(store.engine_id)),
    ]
    assert [one["id"] for one in store.get_waiting_jobs("acme-resize", 10)] == ids[2:], "not eligible any more"
    assert store.get_waiting_jobs("other-resize", 10) == []
    nobody = SeedStore(still.store, still.queue.number, still.jobs, still.handlers)
    there(still, *add(still, "resize", b"4"))
    assert nobody.get_waiting_jobs("acme-resize", 10) == [], "without a engine_id nothing can be locked"


def test_release_jobs_retry(still: Daemon, store: SeedStore) -> None:
    (job_id,) = add(still, "resize", b"1")
    there(still, job_id)
    store.get_waiting_jobs("acme-resize", 1)
    assert store.release_jobs([str(job_id)], "retry") == 1
    found = row(still, job_id)
    assert (found.state, found.owner, found.attempt) == ("retry", 0, 1)
    assert found.scheduled_run_time - found.update_time == RETRY_SECONDS * 1e6
    assert store.get_waiting_jobs("acme-resize", 1) == []


def test_release_jobs_unget(still: Daemon, store: SeedStore) -> None:
    (job_id,) = add(still, "resize", b"1")
    there(still, job_id)
    store.get_waiting_jobs("acme-resize", 1)
    assert store.release_jobs([str(job_id)], "unget") == 1
    assert store.release_jobs([str(job_id)], "unget") == 0, "it is not ours any more"
    assert [one["id"] for one in store.get_waiting_jobs("acme-resize", 1)] == [str(job_id)], "again as soon as possible"


def test_release_jobs_archive(still: Daemon, store: SeedStore) -> None:
    ids = there(still, *add(still, "resize", b"1", b"2"))
    store.get_waiting_jobs("acme-resize", 2)
    assert store.release_jobs([*ids, "17", "no number"], "archive") == 2
    for job_id in ids:
        seen = still.jobs.seen(row(still, int(job_id)))
        assert (seen["lock"], seen["done_dt"] is not None) == ("__done", True)
    assert store.get_waiting_jobtypes() == ([], {})
    with pytest.raises(Invalid, match="retry, unget, archive"):
        store.release_jobs(ids, "burn")


def test_reserve_sysid(still: Daemon, store: SeedStore) -> None:
    other = SeedStore(still.store, still.queue.number, still.jobs, still.handlers)
    assert len({store.engine_id, other.reserve_sysid("b"), other.reserve_sysid("b")}) == 3


def test_renew_sysid(store: SeedStore) -> None:
    engine_id = store.engine_id
    assert store.renew_sysid(engine_id, 600)
    assert not store.renew_sysid(engine_id + 1000, 600)
    store.release_sysid(engine_id)
    assert not store.renew_sysid(engine_id, 600), "what is over cannot be renewed"


def test_release_sysid(still: Daemon, store: SeedStore) -> None:
    (job_id,) = add(still, "resize", b"1")
    there(still, job_id)
    store.get_waiting_jobs("acme-resize", 1)
    store.release_sysid(store.engine_id)
    assert [one.id for one in still.store.orphans([still.queue.number], 10)] == [job_id], "others reset its lock"
    assert store.get_waiting_jobs("acme-resize", 1) == []


def test_select_jobtype_to_run() -> None:
    scheduler = FairShare()
    assert scheduler.select_jobtype_to_run(["a/x"], {"a/x": 3}) == "a/x"
    assert scheduler.select_jobtype_to_run([], {}) is None


def test_jobs_started() -> None:
    scheduler = FairShare()
    scheduler.jobs_started("a/x", 100)
    assert scheduler.running == {"a/x": 100}
    assert scheduler.select_jobtype_to_run(["a/x", "b/x"], {"a/x": 1, "b/x": 1}) == "b/x"


def test_jobs_stopped() -> None:
    scheduler = FairShare()
    scheduler.jobs_started("a/x", 100)
    scheduler.jobs_stopped("a/x", 100)
    assert scheduler.running == {}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("seed")) as found:
        yield found


def test_get_running_jobs(served: Daemon) -> None:
    runner = SeedRunner(served.engine, served.jobs.seen)
    python(served, "nap", "import time\ntime.sleep(600)")
    (job_id,) = add(served, "nap", b"x")
    until(lambda: [one["id"] for one in runner.get_running_jobs()] == [str(job_id)])
    (seen,) = runner.get_running_jobs()
    assert seen["lock"] == str(served.engine.engine_id)
    served.jobs.cancel("acme", job_id)
    until(lambda: runner.get_running_jobs() == [])


def test_get_stopped_jobs(served: Daemon) -> None:
    runner = SeedRunner(served.engine, served.jobs.seen)
    python(served, "ends", "return int(payload) if job.attempt == 1 else 200, ''")
    ids = add(served, "ends", b"200", b"404", b"500", b"102")
    for job_id in ids:
        ended(served, job_id)
    until(lambda: len(runner._stopped) >= 6)
    codes = {(one["id"], one["code"], one["exitcode"]) for one in runner.get_stopped_jobs()}
    expected = {(n, "ok", 200) for n in (0, 2, 3)} | {(1, "failed", 404), (2, "error", 500), (3, "retry", 102)}
    assert codes == {(str(ids[n]), code, exitcode) for n, code, exitcode in expected}
    assert runner.get_stopped_jobs() == [], "each is told once"
