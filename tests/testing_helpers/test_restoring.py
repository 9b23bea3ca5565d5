"""An app comes out of a harness as it went in, whatever happened inside."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from hipq import Answer, Hipq, Invalid, Job, StoreUnavailable, Wait, limit, rate
from hipq.stores.clock import SystemClock
from hipq.testing import harness


def insides(app: Hipq) -> Any:
    """Everything of an app that belongs to its database or its clock."""
    queues = [(queue.name, queue._number, queue._rules, queue._learned) for queue in app.queues]
    return app.database, vars(app.database).copy(), app.is_elsewhere, queues


def test_an_app_that_was_used_goes_on_with_its_own_database(app: Hipq, db: str) -> None:
    first, second = app.queue("first"), app.queue("second", limits=[limit(3), rate(100)])
    work, other = first.job("work")(lambda job: job.data), second.job("other")(lambda _job: None)
    before = work.enqueue("mine", key="mine")
    other.enqueue(key="other")
    app.rules.set_limit("second", 2)
    had, store = insides(app), app.store
    with harness(app, db=db) as shop:
        assert app.url == db
        assert app.store is not store
        assert app.jobs("first") == []
        assert second.throttle_limit == 3  # what was set in the other database is not known here
        work.enqueue("tests", key="mine")
        app.rules.set_limit("second", 50)
        shop.run_until_idle()
        assert app.result(shop.job(work, "mine").id) == "tests"
        shop.assert_ok(work, "mine", result="tests")
    assert insides(app) == had
    assert app.store is store
    assert second.throttle_limit == 2
    assert [job.data for job in app.jobs("first")] == ["mine"]
    app.run(until_empty=True)
    assert app.job(before).result == "mine"
    assert abs(app.job(before).update_time.timestamp() - SystemClock().now() / 1e6) < 60


def test_an_app_in_memory_keeps_what_it_had() -> None:
    app = Hipq("shop", "sqlite://")
    work = app.queue("orders").job("work")(lambda job: job.data)
    job_id = work.enqueue("kept")
    with harness(app) as shop:
        work.enqueue("other")
        shop.run_until_idle()
    assert [job.data for job in app.jobs("orders")] == ["kept"]
    app.run(until_empty=True)
    assert app.result(job_id) == "kept"
    app.close()


def test_an_app_that_was_not_used_opens_nothing(tmp_path: Path) -> None:
    app = Hipq("shop", f"sqlite:///{tmp_path}/own.db")
    work = app.queue("orders").job("work")(lambda _job: None)
    had = insides(app)
    with harness(app) as shop:
        work.enqueue()
        assert len(shop.run_until_idle()) == 1
    assert insides(app) == had
    assert list(tmp_path.iterdir()) == []


def test_queues_declared_inside_know_no_number_outside(app: Hipq) -> None:
    app.queue("taken").job("x")(lambda _job: None).enqueue()
    with harness(app):
        late = app.queue("late").job("late")(lambda _job: None)
        late.enqueue()
        inside = late.queue.number
    assert inside
    assert app.queue("between").number != late.queue.number
    assert app.job(late.enqueue()).type == "late"


def test_it_comes_back_after_an_error(app: Hipq) -> None:
    work = app.queue("orders").job("work")(lambda _job: None)
    had = insides(app)
    with pytest.raises(ZeroDivisionError), harness(app):
        _ = work.enqueue() / 0
    assert insides(app) == had
    away = harness(app, db="postgresql://x@127.0.0.1:1/x")
    with pytest.raises(StoreUnavailable), away:
        pass
    assert insides(app) == had
    with pytest.raises(Invalid, match="sqlite"), harness(app, db="mongodb://nobody"):
        pass
    assert insides(app) == had
    with harness(app) as shop:
        work.enqueue()
        app.close()  # as a program's own shutdown does
    assert insides(app) == had
    with harness(app) as shop:
        work.enqueue()
        assert len(shop.run_until_idle()) == 1


def test_one_harness_at_a_time(app: Hipq) -> None:
    app.queue("orders")
    had = insides(app)
    complaints: list[str] = []

    def elsewhere() -> None:
        try:
            with harness(app):
                raise AssertionError
        except Invalid as error:
            complaints.append(str(error))

    with harness(app):
        elsewhere()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with pytest.raises(Invalid, match="in use by a test already"), harness(app, app):
            pass
    assert complaints == ["shop is in use by a test already: let that end before another begins"] * 2
    with pytest.raises(Invalid, match="in use by a test already"), harness(app, app):
        pass
    assert insides(app) == had


def test_what_is_not_an_app_is_refused() -> None:
    with pytest.raises(Invalid, match="give the apps to test, not 'shop'"), harness("shop"):  # type: ignore[arg-type]
        pass
    with pytest.raises(Invalid, match="give the apps to test"), harness():
        pass
    with pytest.raises(Invalid, match="max_jobs"), harness(Hipq("x", "sqlite://"), max_jobs=0):
        pass


def test_two_apps_on_one_clock_give_each_other_work(app: Hipq, db: str) -> None:
    bank = Hipq("bank", "sqlite://")
    orders, accounts = app.queue("orders"), bank.queue("accounts")

    @orders.job
    def charge(job: Job[Any]) -> Wait:
        debit.enqueue(key=job.key, delay=60)
        return Wait()

    @charge.answered
    def settled(_job: Job[Any], answer: Answer) -> Any:
        return answer.data

    @accounts.job
    def debit(job: Job[Any]) -> None:
        charge.answer(job.key, "paid")

    with harness(app, bank, db=db) as both:
        for number in range(3):
            charge.enqueue(key=f"order-{number}")
        assert [run.name for run in both.run_until_idle()] == ["charge"] * 3
        assert [run.name for run in both.advance(minutes=1)] == ["debit"] * 3 + ["charge.answered"] * 3
        both.assert_ok(charge, "order-2", result="paid")
        both.assert_ok(debit, "order-2")
        both.assert_empty()
        if db == "sqlite://":  # each has a database of its own, so their ids are the same
            with pytest.raises(Invalid, match="several apps have a job"):
                both.job(both.job(charge, "order-2").id)


def test_two_harnesses_at_once(app: Hipq) -> None:
    bank = Hipq("bank", "sqlite://")
    ours, theirs = app.queue("q").job("ours")(lambda _job: 1), bank.queue("q").job("theirs")(lambda _job: 2)
    with harness(app) as one, harness(bank) as two:
        ours.enqueue(key="a", delay=60)
        theirs.enqueue(key="a", delay=60)
        one.advance(minutes=1)
        one.assert_ok(ours, "a")
        two.assert_scheduled(theirs, "a")
        two.advance(minutes=2)
        two.assert_ok(theirs, "a")
        assert two.now > one.now


def test_a_postgres_database_is_left_without_a_lease(app: Hipq) -> None:
    from tests.servers import clean_database

    work = app.queue("orders").job("work")(lambda _job: None)
    with clean_database() as url:
        with harness(app, db=url) as shop:
            work.enqueue()
            shop.run_until_idle()
            assert len(app.store.engines()) == 1
        looker = Hipq("shop", url)
        assert looker.store.engines() == []
        looker.close()


def test_subscribers_of_the_app_are_neither_lost_nor_gathered(app: Hipq) -> None:
    work = app.queue("orders").job("work")(lambda _job: 7)
    heard: list[str] = []
    app.events.subscribe(lambda event: heard.append(event.name), "ok")
    had = {name: list(some) for name, some in app.events._subscribers.items()}
    for _ in range(3):
        with harness(app):
            assert app.result(work.enqueue()) == 7
    assert heard == ["ok"] * 3
    assert app.events._subscribers == had
