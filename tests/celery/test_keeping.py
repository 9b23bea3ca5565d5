"""Which tasks are kept, and what whoever sends them notices of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import chain, chord, group, states
from celery.signals import after_task_publish, before_task_publish
from celery.worker.request import Request
from kombu import Connection, Exchange

import hipq.celery
from hipq import Hipq
from tests.celery.messages import Case, ids, kept_in, publish_all
from tests.servers import free_port

HOUR = 3600


# -- which ------------------------------------------------------------------------------------------------------------
def test_only_what_is_further_out_than_the_limit_is_kept(case: Case, kept: Hipq) -> None:
    now = datetime.now(UTC)
    case.add.apply_async(task_id="now")
    case.add.apply_async(task_id="soon", countdown=800)
    case.add.apply_async(task_id="just", eta=now + timedelta(seconds=899))
    case.add.apply_async(task_id="past", eta=now - timedelta(days=1))
    case.add.apply_async(task_id="far", countdown=1000)
    case.add.apply_async(task_id="further", eta=now + timedelta(days=4000))
    assert ids(kept) == {"far", "further"}
    assert case.got(4).keys() == {"now", "soon", "just", "past"}


def test_the_limit_can_be_chosen(case: Case, tmp_path: Path) -> None:
    with kept_in(case, tmp_path, further_than=timedelta(minutes=1)) as kept:
        case.add.apply_async(task_id="soon", countdown=50)
        case.add.apply_async(task_id="far", countdown=100)
        assert ids(kept) == {"far"}


@pytest.mark.parametrize("timezone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("utc", [True, False])
def test_an_eta_without_a_time_zone_is_due_when_a_worker_thinks_so(tmp_path: Path, timezone: str, utc: bool) -> None:
    case = Case("memory://", timezone=timezone, enable_utc=utc)
    with kept_in(case, tmp_path) as kept:
        naive = datetime.now() + timedelta(days=3)
        aware = datetime.now(ZoneInfo("Australia/Lord_Howe")) + timedelta(days=3)
        for task_id, eta in (("naive", naive), ("aware", aware), ("text", aware.isoformat())):
            case.add.apply_async(task_id=task_id, eta=eta)
        due = {job.key: job.scheduled_run_time for job in kept.jobs("eta")}
        publish_all(kept)
        for task_id, message in case.got(3, raw=True).items():
            request = Request(message, app=case.app, task=case.app.tasks["add"])
            assert request.eta == due[task_id]


def test_all_that_celery_publishes_goes_this_way(case: Case, kept: Hipq) -> None:
    add = case.add
    add.s(1, 2).set(task_id="signature").apply_async(countdown=HOUR)
    case.app.signature("unknown", task_id="by name").apply_async(countdown=HOUR)
    case.app.send_task("unknown", task_id="send_task", countdown=HOUR)
    chain(add.s(1, 2).set(task_id="first"), add.s(3).set(task_id="second")).apply_async(countdown=HOUR)
    group(add.s(1).set(task_id="one"), add.s(2).set(task_id="two")).apply_async(countdown=HOUR)
    chord([add.s(1).set(task_id="head", countdown=HOUR)])(add.s(2).set(task_id="body"))
    add.map([1, 2]).apply_async(task_id="map", countdown=HOUR)
    assert ids(kept) == {"signature", "by name", "send_task", "first", "one", "two", "head", "map"}


def test_eager_tasks_run_at_once(case: Case, kept: Hipq) -> None:
    case.app.conf.task_always_eager = True
    assert case.add.apply_async((1,), countdown=HOUR).successful()
    assert not ids(kept)


def test_what_goes_to_another_broker_is_left_alone(case: Case, kept: Hipq, tmp_path: Path) -> None:
    folders = {"data_folder_in": f"{tmp_path}/files", "data_folder_out": f"{tmp_path}/files"}
    (tmp_path / "files").mkdir()
    control = {"control_folder": f"{tmp_path}/control"}
    with Connection("filesystem://", transport_options=folders | control) as other:
        case.add.apply_async(task_id="elsewhere", countdown=HOUR, connection=other)
    with case.app.connection_for_write() as same:
        case.add.apply_async(task_id="here", countdown=HOUR, connection=same)
    assert ids(kept) == {"here"}
    assert "elsewhere" in "".join(one.read_text() for one in (tmp_path / "files").iterdir())


def test_what_the_broker_itself_delays_is_left_alone(case: Case, kept: Hipq) -> None:
    """With quorum queues messages wait in RabbitMQ's exchanges of these names; their routing key is the time."""
    message = case.app.amqp.create_task_message("native", "add", (), {}, countdown=HOUR)
    exchange = Exchange("celery_delayed_27", type="topic")
    with case.app.producer_or_acquire() as producer:
        case.app.amqp.send_task_message(producer, "add", message, exchange=exchange, routing_key="1.0.add")
    assert not ids(kept)


# -- what one notices -------------------------------------------------------------------------------------------------
def test_signals_fire_when_a_task_is_sent_and_may_change_it(case: Case, kept: Hipq) -> None:
    fired: list[str] = []

    def before(headers: dict[str, Any], properties: dict[str, Any], **_: Any) -> None:
        fired.append("before")
        headers["added"], properties["priority"] = "by a signal", 4

    def after(headers: dict[str, Any], **_: Any) -> None:
        fired.append(f"after {headers['added']}, {len(ids(kept))} kept")

    before_task_publish.connect(before, sender="add", weak=False)
    after_task_publish.connect(after, sender="add", weak=False)
    try:
        case.add.apply_async(task_id="far", countdown=HOUR)
        assert fired == ["before", "after by a signal, 1 kept"]
        publish_all(kept)
        assert len(fired) == 2
    finally:
        before_task_publish.disconnect(before, sender="add")
        after_task_publish.disconnect(after, sender="add")
    message = case.got(1)["far"]
    assert message["headers"]["added"] == "by a signal"
    assert message["properties"]["priority"] == 4


def test_monitors_hear_of_a_task_when_it_is_sent(tmp_path: Path) -> None:
    case = Case("memory://", task_send_sent_event=True)
    heard: list[Any] = []
    with kept_in(case, tmp_path) as kept, case.app.connection_for_read() as connection:
        receiver = case.app.events.Receiver(connection, handlers={"task-sent": heard.append})
        with receiver.consumer_context(wakeup=False) as (own, _, _):
            case.add.apply_async(task_id="far", countdown=HOUR)
            own.drain_events(timeout=10)
        assert ids(kept) == {"far"}
    assert [event["uuid"] for event in heard] == ["far"]


def test_a_task_is_kept_though_monitors_cannot_be_told(tmp_path: Path) -> None:
    case = Case(f"redis://127.0.0.1:{free_port()}", task_send_sent_event=True, task_publish_retry=False)
    with kept_in(case, tmp_path) as kept:
        case.add.apply_async(task_id="far", countdown=HOUR)
        assert ids(kept) == {"far"}


def test_its_time_to_live_counts_from_when_it_was_sent(case: Case, kept: Hipq) -> None:
    case.add.apply_async(task_id="long", countdown=HOUR, expires=2 * HOUR)
    case.add.apply_async(task_id="over", countdown=HOUR, expires=2 * HOUR)
    (long, over) = kept.jobs("eta", oldest=True)
    data = over.data | {"expires_at": time.time() - 5}
    kept.cancel(over.id)
    kept.queues[0].enqueue("publish", data, key="over", delay=HOUR)
    assert long.data["expires_at"] == pytest.approx(time.time() + 2 * HOUR, abs=60)
    kept.jobs.retry_all("eta")
    kept.run(until_empty=True)
    messages = case.got(2)
    assert 0 < int(messages["long"]["properties"]["expiration"]) <= 2 * HOUR * 1000
    assert messages["over"]["properties"]["expiration"] == "0"


def test_the_same_task_sent_twice_is_published_once(case: Case, kept: Hipq) -> None:
    for _ in range(3):
        case.add.apply_async((1,), task_id="same", countdown=HOUR)
    assert len(kept.jobs("eta")) == 1


def test_a_retry_is_kept_though_the_run_before_is_not_settled(case: Case, kept: Hipq) -> None:
    """The broker has the first run, a worker has run it, it retries; and the job that published it is not final yet."""
    case.add.apply_async(task_id="again", countdown=HOUR)
    sent_meanwhile: list[str] = []
    real = case.app.amqp.Producer.publish

    def publish(*args: Any, **options: Any) -> Any:
        told = real(*args, **options)
        if not sent_meanwhile:
            sent_meanwhile.append("a retry")
            case.add.apply_async(task_id="again", countdown=HOUR, retries=1)
            case.add.apply_async(task_id="again", countdown=HOUR, retries=1)  # once more is once too often
            case.add.apply_async(task_id="again", countdown=HOUR)  # the task sends itself: another run
        return told

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kombu.Producer.publish", publish)
        kept.jobs.retry_all("eta")
        kept.run(until_empty=True)
    assert sent_meanwhile
    waiting = [(job.key, job.data["retries"]) for job in kept.jobs("eta", oldest=True, state="initial")]
    assert waiting == [("again~1", 1), ("again~2", 0)]
    assert hipq.celery.cancel(case.app, "again")
    assert not ids(kept)


# -- revoking ---------------------------------------------------------------------------------------------------------
def test_revoked_tasks_are_dropped_and_known_as_revoked(case: Case, kept: Hipq) -> None:
    result = case.add.apply_async(countdown=HOUR)
    others = [case.add.apply_async(countdown=HOUR, task_id=task_id) for task_id in ("one", "two", "three")]
    result.revoke()
    case.app.control.revoke(["one", "two"])
    assert ids(kept) == {"three"}
    assert [one.state for one in (result, *others)] == [states.REVOKED] * 3 + [states.PENDING]
    assert not hipq.celery.cancel(case.app, "two")
    assert hipq.celery.cancel(case.app, "three")
    assert not ids(kept)
    kept.run(until_empty=True)
    assert {job.code for job in kept.jobs("eta")} == {"cancelled"}


def test_revoking_nothing_or_a_task_whose_id_another_begins_with_drops_no_other(case: Case, kept: Hipq) -> None:
    for task_id in ("order-7", "order-7~1", "order-7~2"):
        case.add.apply_async(countdown=HOUR, task_id=task_id)
    nothing: Any
    for nothing in ("", None, 5):
        assert not hipq.celery.cancel(case.app, nothing)
    case.app.control.revoke("")
    case.app.control.revoke(["", None])
    assert ids(kept) == {"order-7", "order-7~1", "order-7~2"}
    case.app.control.revoke("order-7")
    assert ids(kept) == {"order-7~1", "order-7~2"}


def test_an_id_that_no_task_can_have_keeps_no_other_from_being_revoked(case: Case, kept: Hipq) -> None:
    for task_id in ("one", "two"):
        case.add.apply_async(countdown=HOUR, task_id=task_id)
    case.app.control.revoke(["one", "a\0b", "\ud800", "x" * 501, "two"])
    assert not ids(kept)
    case.app.control.revoke(5)  # which Celery tells its workers, too
    assert not hipq.celery.cancel(case.app, "a\0b")


def test_a_chord_hears_that_one_of_its_tasks_was_revoked(case: Case, kept: Hipq) -> None:
    body = chord([case.add.s(n).set(task_id=job_id, countdown=HOUR) for n, job_id in enumerate(("head", "other"))])(
        case.add.s(3)
    )
    heard: list[Any] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            case.app.backend, "on_chord_part_return", lambda request, *_: heard.append(request.chord["options"])
        )
        case.app.control.revoke("head")
    assert [one["task_id"] for one in heard] == [body.id]
    assert len(ids(kept)) == 1
