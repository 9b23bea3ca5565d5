"""An instance over three databases, used as users use it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hipq import Answer, Hipq, Job, Ok, Wait, limit, per_lane
from hipq.errors import Conflict, DuplicateKey, Invalid, StoreUnavailable, WrongConnection
from hipq.shards import place
from hipq.shards.members import KIND
from hipq.shards.router import ShardRouter
from hipq.stores.filters import Filter


def shop(db: Any) -> Hipq:
    app = Hipq("shop", db)
    orders = app.queue("orders", throttle_limit=6)

    @orders.job
    def charge(_job: Job) -> Wait:
        return Wait()

    @charge.answered
    def settled(job: Job, answer: Answer) -> Ok:
        return Ok({"n": job.data["n"], "said": answer.data})

    @orders.job
    def parcel(job: Job) -> Any:
        for n in range(job.data.get("parts", 0)):
            job.enqueue("parcel", {"of": job.key}, key=f"{job.key}.{n}")
        return job.data

    @orders.job
    def call(job: Job) -> Wait:
        return Wait(key=f"call of {job.key}")

    return app


class Running:
    """Counts what runs at a time, and the most that ever did, by name."""

    def __init__(self) -> None:
        self.most = Counter[str]()
        self._now = Counter[str]()
        self._lock = threading.Lock()

    @contextmanager
    def one(self, name: str = "") -> Iterator[None]:
        with self._lock:
            self._now[name] += 1
            self.most[name] = max(self.most[name], self._now[name])
        yield
        with self._lock:
            self._now[name] -= 1


def router(app: Hipq) -> ShardRouter:
    found: Any = app.store
    return found  # type: ignore[no-any-return]


def slots(app: Hipq, **wanted: Any) -> Counter[int]:
    return Counter(place.slot_of_job(job.id) for job in app.jobs("orders", limit=1000, **wanted))


def test_jobs_are_shared_out_found_and_run_wherever_they_are(urls: dict[str, str]) -> None:
    app = shop(urls)
    app.migrate()
    keyed = [app.declared.find("orders").enqueue("parcel", {"n": n}, key=f"order-{n}") for n in range(40)]
    many = app.declared.find("orders").enqueue_many("parcel", [{"n": n} for n in range(500)])
    assert set(slots(app)) == {0, 1, 2}
    assert app.jobs.count("orders") == 540
    assert [app.job(job).data["n"] for job in keyed] == list(range(40))
    with pytest.raises(DuplicateKey):
        app.declared.find("orders").enqueue("parcel", {}, key="order-3")
    app.cancel(keyed[5])
    app.run(until_empty=True)
    assert app.jobs.count("orders", state="final") == 540
    assert [app.result(job)["n"] for job in many] == list(range(500))
    assert app.job(keyed[5]).code == "cancelled"
    page, seen = app.jobs("orders", limit=200), list[int]()
    while page:
        seen += [job.id for job in page]
        page = app.jobs("orders", limit=200, after=seen[-1])
    assert sorted(seen, reverse=True) == seen
    assert set(seen) == {*keyed, *many}
    assert app.jobs.requeue(keyed[0]) not in seen
    assert app.jobs.prune(older_than=timedelta(0)) == 540
    app.close()


def test_answers_find_their_jobs_early_on_time_and_under_any_key(urls: dict[str, str]) -> None:
    app = shop(urls)
    app.migrate()
    orders = app.declared.find("orders")
    early = [app.answer("orders", "charge", f"order-{n}", n) for n in range(6)]
    early += [app.answer("orders", "call", f"call of {n}", n) for n in range(6)]
    assert {*early} == {"buffered"}
    jobs = [orders.enqueue("charge", {"n": n}, key=f"order-{n}") for n in range(6)]
    calls = [orders.enqueue("call", {"n": n}, key=str(n)) for n in range(6)]
    app.run(until_empty=True)
    app.run(until_empty=True)  # an answer that was fetched from another shard
    assert [app.result(job, timeout=10) for job in jobs] == [{"n": n, "said": n} for n in range(6)]
    assert [app.result(job, timeout=10) for job in calls] == list(range(6))
    late = [orders.enqueue("call", {}, key=f"again {n}") for n in range(6)]
    app.run(until_empty=True)
    for outcome in ("matched", "duplicate"):
        for n in range(6):
            assert app.answer("orders", "call", f"call of again {n}", n, answer_id=f"id{n}") == outcome
    own = [orders.enqueue("charge", {"n": n}) for n in range(6)]
    app.run(until_empty=True)
    assert [app.answer("orders", "charge", app.job(job).key, 1) for job in own] == ["matched"] * 6
    app.run(until_empty=True)
    assert {app.job(job).code for job in [*late, *own]} == {"ok"}
    assert app.answers.list()
    assert not app.answers.list(state="buffered")
    app.close()


def test_children_stay_with_their_parents(files: dict[str, str]) -> None:
    app = shop(files)
    jobs = [app.declared.find("orders").enqueue("parcel", {"parts": 2}, key=f"order-{n}") for n in range(9)]
    app.run(until_empty=True)
    assert app.jobs.count("orders", state="final") == 27
    for parent in jobs:
        children = app.store.find(Filter(app.declared.find("orders").number, parent=parent))
        assert [place.slot_of_job(one.id) for one in children] == [place.slot_of_job(parent)] * 2
    app.close()


def test_a_limit_holds_over_all_shards_and_all_of_it_is_used(files: dict[str, str]) -> None:
    app = Hipq("shop", files)
    orders = app.queue("orders", throttle_limit=6)
    running = Running()

    @orders.job
    def work(_job: Job) -> None:
        with running.one():
            time.sleep(0.03)

    here = [key for n in range(2000) if router(app).home(key := f"order-{n}").name == "b"][:150]
    work.enqueue_many([{} for _ in here], keys=here)
    app.run(until_empty=True, concurrency=20)
    assert app.jobs.count("orders", state="final") == 150
    assert running.most[""] == 6


def test_a_shard_that_is_away_holds_up_no_other(files: dict[str, str], tmp_path: Path) -> None:
    app = shop(files)
    orders = app.declared.find("orders")
    jobs = [orders.enqueue("parcel", {"n": n}, key=f"order-{n}") for n in range(30)]
    app.close()
    (tmp_path / "b.db").rename(tmp_path / "kept")
    (tmp_path / "b.db").mkdir()  # no database can be opened there
    again = shop(files)
    names = {job: router(again).of_job(job).name for job in jobs}
    again.run(until_empty=True)
    for job, name in names.items():
        if name != "b":
            assert again.job(job).state == "final"
    ids = [job for _ in range(4) for job in again.declared.find("orders").enqueue_many("parcel", [{}] * 75)]
    assert {router(again).of_job(job).name for job in ids} == {"a", "c"}
    key = next(f"x{n}" for n in range(100) if router(again).home(f"x{n}").name == "b")
    with pytest.raises(StoreUnavailable, match="shard b"):
        again.declared.find("orders").enqueue("parcel", {}, key=key)
    with pytest.raises(StoreUnavailable, match="shard b"):
        again.jobs("orders")
    again.close()
    (tmp_path / "b.db").rmdir()
    (tmp_path / "kept").rename(tmp_path / "b.db")
    back = shop(files)
    back.run(until_empty=True)
    assert back.jobs.count("orders", state="final") == 330
    back.close()


def test_a_users_transaction_is_one_of_its_shards(files: dict[str, str], tmp_path: Path) -> None:
    app = shop(files)
    orders = app.declared.find("orders")
    mine = next(f"x{n}" for n in range(100) if router(app).home(f"x{n}").name == "b")
    theirs = next(f"x{n}" for n in range(100) if router(app).home(f"x{n}").name == "c")
    conn = sqlite3.connect(tmp_path / "b.db")
    job, free = orders.enqueue("parcel", {}, key=mine, conn=conn), orders.enqueue("parcel", {}, conn=conn)
    with pytest.raises(Invalid, match=f"open on shard b, and the job {theirs} belongs to shard c"):
        orders.enqueue("parcel", {}, key=theirs, conn=conn)
    conn.rollback()
    assert app.jobs.count("orders") == 0
    job, free = orders.enqueue("parcel", {}, key=mine, conn=conn), orders.enqueue("parcel", {}, conn=conn)
    conn.commit()
    conn.close()
    assert {router(app).of_job(one).name for one in (job, free)} == {"b"}
    with sqlite3.connect(tmp_path / "elsewhere.db") as other, pytest.raises(WrongConnection, match="no shard"):
        orders.enqueue("parcel", {}, conn=other)
    app.close()


def test_jobs_with_a_shard_key_are_together_and_their_answers_find_them(files: dict[str, str]) -> None:
    app = Hipq("shop", files)
    orders = app.queue("orders", shard_key=lambda job: job.data["customer"])

    @orders.job
    def charge(_job: Job) -> Wait:
        return Wait()

    assert app.answer("orders", "charge", "o1", "early") == "buffered"
    jobs = [charge.enqueue({"customer": f"c{n % 3}"}, key=f"o{n}") for n in range(12)]
    for customer in range(3):
        assert len({place.slot_of_job(job) for n, job in enumerate(jobs) if n % 3 == customer}) == 1
    app.run(until_empty=True)
    assert app.job(jobs[1]).result == "early"
    assert [app.answer("orders", "charge", f"o{n}", n) for n in (0, *range(2, 12))] == ["matched"] * 11
    app.run(until_empty=True)
    assert app.jobs.count("orders", live=True) == 0
    with pytest.raises(Invalid, match="shard_key raised KeyError"):
        charge.enqueue({})
    for wrong in ("", 5, None):
        with pytest.raises(Invalid, match="shard_key must return a text that is not empty"):
            charge.enqueue({"customer": wrong}, key="x")
    app.close()


def test_an_answer_that_comes_while_the_handler_runs_waits_for_it(files: dict[str, str]) -> None:
    """Its key belongs to another shard than the job."""
    app = Hipq("shop", files)
    orders = app.queue("orders", shard_key=lambda job: job.data["customer"])
    said: list[str] = []

    @orders.job
    def charge(job: Job) -> Wait:
        said.append(app.answer("orders", "charge", job.key, "meanwhile"))
        return Wait()

    jobs = [charge.enqueue({"customer": f"c{n % 3}"}, key=f"o{n}") for n in range(12)]
    app.run(until_empty=True)
    assert {*said} == {"buffered"}
    assert [app.job(job).result for job in jobs] == ["meanwhile"] * 12
    app.close()


def test_an_answer_that_comes_again_is_offered_again(files: dict[str, str]) -> None:
    """Whoever brought it the first time may have died before the other shards were asked."""
    app = Hipq("shop", files)
    orders = app.queue("orders", shard_key=lambda job: job.data["customer"])

    @orders.job
    def charge(_job: Job) -> Wait:
        return Wait()

    jobs = [charge.enqueue({"customer": "c"}, key=f"o{n}") for n in range(9)]
    app.run(until_empty=True)
    for n in range(9):
        home = router(app).home(f"o{n}")
        new = replace(orders.arrived("charge", f"o{n}", n, answer_id="a"), queue=router(app).own(orders.number, home))
        home.store.answer([new], home.store.now())
    assert app.jobs.count("orders", phase="waiting") > 0
    for n in range(9):
        app.answer("orders", "charge", f"o{n}", n, answer_id="a")
    app.run(until_empty=True)
    assert [app.job(job).result for job in jobs] == list(range(9))
    app.close()


def test_other_limits_hold_whoever_lends_what(files: dict[str, str]) -> None:
    app = Hipq("shop", files)
    orders = app.queue("orders", limits=[limit(30), per_lane(6)])
    running = Running()

    @orders.job
    def work(job: Job) -> None:
        with running.one(job.lane):
            time.sleep(0.03)

    for lane in ("x", "y"):
        work.enqueue_many([{}] * 60, keys=[f"{lane}{n}" for n in range(60)], lane=lane)
    app.run(until_empty=True, concurrency=30)
    assert app.jobs.count("orders", state="final") == 120
    assert running.most == {"x": 6, "y": 6}
    with pytest.raises(Invalid, match="2 a lane of the queue few, divided by 3 shards"):
        app.queue("few", limits=[per_lane(2)]).app.worker(["few"])
    app.close()


def test_hands_are_those_of_all_shards(files: dict[str, str]) -> None:
    app = Hipq("shop", files)
    orders = app.queue("orders")
    running = Running()

    @orders.job
    def work(_job: Job) -> None:
        with running.one():
            time.sleep(0.01)

    work.enqueue_many([{}] * 45, keys=[f"o{n}" for n in range(45)])
    app.run(until_empty=True, concurrency=1)
    assert app.jobs.count("orders", state="final") == 45
    assert running.most[""] == 1
    app.close()


def test_a_worker_can_have_some_of_the_shards(files: dict[str, str]) -> None:
    app = shop(files)
    jobs = [app.declared.find("orders").enqueue("parcel", {"n": n}, key=f"order-{n}") for n in range(30)]
    app.run(until_empty=True, shards=["a", "c"])
    assert {router(app).of_job(job).name for job in jobs if app.job(job).state == "final"} == {"a", "c"}
    assert {router(app).of_job(job).name for job in jobs if app.job(job).state != "final"} == {"b"}
    for wrong in (["d"], []):
        with pytest.raises(Invalid, match="shard"):
            app.run(shards=wrong)
    alone = Hipq("alone", files["a"])
    alone.queue("orders")
    with pytest.raises(Invalid, match="alone has one database"):
        alone.run(shards=["a"])
    app.close()


def test_names_may_come_in_any_order(files: dict[str, str]) -> None:
    first = shop(files)
    assert [shard.name for shard in router(first).shards] == ["a", "b", "c"]
    first.close()
    again = shop(dict(reversed(files.items())))
    assert [shard.name for shard in router(again).shards] == ["a", "b", "c"]
    again.close()


def test_cron_ticks_once_over_all_shards(files: dict[str, str]) -> None:
    app = Hipq("shop", files)
    orders = app.queue("orders")

    @orders.cron("* * * * *", overlap=True, missed="all")
    def tidy(job: Job) -> None: ...

    with app.working():
        until = time.monotonic() + 20
        while not app.cron.list() and time.monotonic() < until:
            time.sleep(0.05)
    assert len(app.cron.list()) == 1
    numbers = [(shard.store, shard.number("shop", "orders", "shop_orders")) for shard in router(app).shards]
    assert [len(store.schedules(number)) for store, number in numbers] == [1, 0, 0]
    app.close()


def test_no_password_is_shown(files: dict[str, str]) -> None:
    app = Hipq("shop", {"a": "postgresql://ann:secret@127.0.0.1:1/shop", "b": "postgresql://bob:secret@127.0.0.1:1/x"})
    assert repr(app) == (
        '<Hipq shop on {"a": "postgresql://ann:…@127.0.0.1:1/shop", "b": "postgresql://bob:…@127.0.0.1:1/x"}>'
    )
    with pytest.raises(StoreUnavailable) as raised:
        _ = app.store
    assert "secret" not in str(raised.value)
    again = Hipq("shop", Hipq("shop", files).url)
    assert [shard.name for shard in router(again).shards] == ["a", "b", "c"]
    again.close()


# -- which databases -------------------------------------------------------------------------------------------------
def test_databases_in_another_order_are_refused(files: dict[str, str]) -> None:
    a, b, c = files.values()
    first = Hipq("shop", [a, b, c])
    assert first.queue("orders").numbers
    first.close()
    with pytest.raises(Conflict, match="the database given as shard s1 of shop is its shard s2"):
        _ = Hipq("shop", [b, a, c]).store
    with pytest.raises(Invalid, match="shop has jobs in its shard s3, too"):
        _ = Hipq("shop", [a, b]).store
    with pytest.raises(Invalid, match="s4 is no shard of shop: there are s1, s2, s3"):
        _ = Hipq("shop", [a, b, c, f"{c}4"]).store


def test_a_database_that_is_in_use_can_be_the_first_shard_only(files: dict[str, str]) -> None:
    a, b, _ = files.values()
    alone = Hipq("shop", a)
    job = alone.queue("orders", throttle_limit=5).enqueue("parcel", {})
    alone.close()
    with pytest.raises(Conflict, match="shard s2 must have an empty database"):
        _ = Hipq("shop", [b, a]).store
    app = shop([a, b])  # a mistake leaves nothing behind
    assert app.job(job).state == "initial"
    assert [shard.part for shard in router(app).shards] == [10**15, 0]
    app.run(until_empty=True)
    assert app.job(job).code == "ok"
    app.close()


def test_all_must_be_there_when_an_instance_begins(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "c.db").mkdir()
    with pytest.raises(StoreUnavailable, match="all shards must be there when an instance begins to use them"):
        _ = Hipq("shop", files).store


@pytest.mark.parametrize(
    ("db", "why"),
    [
        ([], "1 to 1023 shards, not 0"),
        (["sqlite:///x.db", "sqlite:///x.db"], "the same database"),
        ({"1st": "sqlite:///x.db"}, "a shard's name is a letter"),
        (["x.db"], "write sqlite:///x.db"),
    ],
)
def test_what_is_no_list_of_shards_is_refused(db: Any, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        Hipq("shop", db)


def test_what_needs_one_database_says_so(files: dict[str, str]) -> None:
    app = shop(files)
    with pytest.raises(Invalid, match="each with an engine of its own"):
        app.engine()
    with pytest.raises(Invalid, match="restored is for one shard at a time"):
        app.store.restored(0)
    assert set(router(app).notes(KIND)) == {"shop"}
    app.close()
