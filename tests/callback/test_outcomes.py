"""What becomes of an answer that is brought to a callback URL, and what whoever brought it is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from hipq import Hipq, Job, Ok, Progress, Queue, Retry, Wait, fixed
from hipq.callback.asgi import callbacks
from hipq.callback.deliver import AnswerDelivery
from hipq.callback.http import CallbackRequest
from hipq.errors import StoreUnavailable
from hipq.job.model import Row
from hipq.testing.clock import HandClock
from tests.callback.conftest import HOUR, Post, Told, call

Sign = Callable[..., str]
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where these tests see it, whatever a command did that was run before."""
    monkeypatch.setattr(logging.getLogger("hipq"), "propagate", True)


@pytest.fixture
def waits(charge: Any, run: Callable[[], None]) -> int:
    """A job that waits for its answer."""
    job_id: int = charge.enqueue(key="order-17")
    run()
    return job_id


def test_an_answer_is_brought_to_its_job(
    app: Hipq, post: Post, sign: Sign, waits: int, run: Callable[[], None]
) -> None:
    told = post(sign(waits), b'{"receipt": 9}', headers=JSON)
    assert (told.status, told.json) == (200, {"answer": "matched"})
    assert told.headers["content-type"] == "application/json"
    run()
    assert app.result(waits) == {"paid": {"receipt": 9}}


def test_a_handler_gives_its_job_s_url_away(app: Hipq, queue: Queue, post: Post, run: Callable[[], None]) -> None:
    app._callback_url = "https://shop.example/hipq"
    sent: list[str] = []

    @queue.job
    def ask(job: Any) -> Wait:
        sent.append(job.callback_url())
        return Wait()

    job_id = ask.enqueue()
    run()
    base, _, token = sent[0].rpartition("/")
    assert base == "https://shop.example/hipq"
    assert post(token, b"5").json == {"answer": "matched"}
    assert app.result(job_id) == 5, "it has no answer handler, so the answer is its result"


def test_one_that_is_early_is_kept_for_its_job(
    app: Hipq, charge: Any, post: Post, sign: Sign, run: Callable[[], None]
) -> None:
    job_id = charge.enqueue(key="order-17")
    told = post(sign(job_id), b"1")
    assert (told.status, told.json) == (202, {"answer": "buffered"})
    run()
    assert app.result(job_id) == {"paid": 1}


def test_the_same_one_again_is_a_duplicate(post: Post, sign: Sign, waits: int, run: Callable[[], None]) -> None:
    for header in ("Idempotency-Key", "webhook-id", "hipq-answer-id"):
        told = [post(sign(waits), b"1", headers={header: f"message of {header}"}) for _ in range(2)]
        assert (told[1].status, told[1].json) == (200, {"answer": "duplicate"})
    run()
    without = post(sign(waits), b"1")
    assert without.json == {"answer": "duplicate"}, "by its body, since the job has ended with the same"


def test_the_first_of_the_headers_counts(app: Hipq, post: Post, sign: Sign, waits: int) -> None:
    post(sign(waits), b"1", headers={"hipq-answer-id": "c", "Webhook-Id": "b", "Idempotency-Key": "a"})
    post(sign(waits), b"1", headers={"hipq-answer-id": "c", "Webhook-Id": "b"})
    assert [one.answer_id for one in app.answers.list()] == ["a", "b"]


def test_another_answer_after_the_end_is_a_conflict(
    app: Hipq, post: Post, sign: Sign, waits: int, run: Callable[[], None]
) -> None:
    post(sign(waits), b"1")
    run()
    told = post(sign(waits), b"2")
    assert (told.status, told.json) == (409, {"answer": "conflict"})
    assert app.result(waits) == {"paid": 1}


def test_after_a_job_was_cancelled_its_answer_is_late(app: Hipq, post: Post, sign: Sign, waits: int) -> None:
    token = sign(waits)
    app.cancel(waits)
    told = post(token, b"1")
    assert (told.status, told.json) == (410, {"answer": "late"})


def test_a_new_job_never_gets_the_answer_of_the_one_before(
    app: Hipq, charge: Any, post: Post, sign: Sign, waits: int, run: Callable[[], None], clock: HandClock
) -> None:
    token = sign(waits, after=100 * HOUR)
    app.cancel(waits)
    for passed in (0, 2):  # the second time its early_window is over
        clock.advance(hours=passed)
        successor = charge.enqueue(key="order-17", timeout=1e6)
        run()
        told = post(token, f'"after {passed} hours"'.encode())
        assert (told.status, told.json) == (410, {"answer": "late"})
        assert app.job(successor).phase == "waiting"
        assert [one.job for one in app.answers.list(state="late")][-1] == waits
        assert post(sign(successor), b"1").json == {"answer": "matched"}
        run()
        assert app.result(successor) == {"paid": 1}


def test_an_answer_to_an_earlier_attempt_is_late_where_that_is_asked_for(
    app: Hipq, queue: Queue, post: Post, sign: Sign, run: Callable[[], None]
) -> None:
    fenced = queue.job("fenced", fence="attempt")(lambda _: Wait())
    free = queue.job("free")(lambda _: Wait())
    for kind in (fenced, free):
        kind.answered(lambda _, answer: Retry(0) if answer.data == "again" else Ok(answer.data))
    for kind, expected in ((fenced, 410), (free, 200)):
        job_id = kind.enqueue()
        run()
        first = sign(job_id)
        assert post(first, b'"again"').status == 200
        run()
        assert app.job(job_id).attempt == 2
        assert post(first, b"1").status == expected
    run()
    assert post(sign(job_id), b"1").status == 200


def test_an_answer_may_say_that_the_work_failed(
    app: Hipq, queue: Queue, post: Post, sign: Sign, run: Callable[[], None]
) -> None:
    kind = queue.job("fails", retry=fixed(60))(lambda _: Wait())
    for options in ({"headers": {"hipq-error": "true"}}, {"query": "error=true"}, {"query": "a=b&error=1"}):
        job_id = kind.enqueue()
        run()
        assert post(sign(job_id), b'"no money"', **options).json == {"answer": "matched"}
        run()
        assert app.job(job_id).failures == 1
        assert "no money" in str(app.job(job_id).fault)
    assert post(sign(job_id), b"1", headers={"hipq-error": "maybe"}).status == 400
    assert post(sign(job_id), b"1", query="error=false").status == 200


def test_several_answers_come_one_after_the_other(
    app: Hipq, queue: Queue, post: Post, sign: Sign, run: Callable[[], None]
) -> None:
    kind = queue.job("steps")(lambda _: Wait())
    kind.answered(lambda _, answer: Ok(answer.data) if answer.data == "done" else Progress())
    job_id = kind.enqueue()
    run()
    assert [post(sign(job_id), f'"{word}"'.encode()).status for word in ("accepted", "half", "done")] == [200, 202, 202]
    run()
    assert app.result(job_id) == "done"


# -- refused ---------------------------------------------------------------------------------------------------------
def refused(told: Told) -> tuple[int, str]:
    assert set(told.json) <= {"error", "answer"}
    return told.status, told.json["error"]


def test_an_expired_url_says_so(app: Hipq, post: Post, sign: Sign, waits: int, clock: HandClock) -> None:
    token = sign(waits, after=5_000_000)
    clock.advance(seconds=5)
    told = post(token, b"1")
    assert (told.status, told.json["answer"]) == (410, "expired")
    assert app.answers.list() == []


def test_a_job_that_was_deleted_is_gone(
    app: Hipq, post: Post, sign: Sign, waits: int, run: Callable[[], None], clock: HandClock
) -> None:
    token = sign(waits, after=50 * HOUR)
    post(token, b"1")
    run()
    clock.advance(hours=48)
    assert app.jobs.prune(older_than=60) == 1
    told = post(token, b"1")
    assert (told.status, told.json["answer"]) == (410, "gone")


def test_a_url_of_another_tenant_or_instance_or_none_is_forbidden(
    app: Hipq, make_app: Callable[[], Hipq], post: Post, waits: int, clock: HandClock
) -> None:
    row = app.store.get(waits)
    assert row
    until = clock.now() + HOUR
    tokens = [app.signer.sign(replace(row, tenant="acme"), until)]
    other = make_app()
    other.name = "bank"
    tokens += [other.signer.sign(row, until), "rubbish", "x" * 100_000, app.signer.sign(row, until)[:-1]]
    said = [refused(post(token, b"1")) for token in tokens]
    assert said == [(403, "This URL is not one that was signed here.")] * 5
    assert app.answers.list() == []


def test_urls_of_a_key_that_was_dropped_are_forbidden(
    app: Hipq, post: Post, sign: Sign, waits: int, clock: HandClock
) -> None:
    first = sign(waits)
    app.signer.rotate()
    assert post(first, b"1").status == 200
    clock.advance(seconds=61)
    second = sign(waits)
    app.signer.rotate()
    assert post(first, b"1").status == 403
    assert post(second, b"1").status == 202


def test_only_post_brings_answers(post: Post, sign: Sign, waits: int) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "post"):
        told = post(sign(waits), b"1", method=method)
        assert (told.status, told.headers["allow"]) == (405, "POST")


def test_there_is_nothing_but_urls(post: Post, sign: Sign, waits: int) -> None:
    assert post("", b"1", path="/").status == 404
    assert post(sign(waits), b"1", path="/mounted/anywhere/").status == 200


def test_the_same_answer_id_to_another_job_with_that_key_is_no_duplicate(
    app: Hipq, post: Post, charge: Any, run: Callable[[], None]
) -> None:
    for number in (1, 2):
        job_id = charge.enqueue(key="ship")
        run()
        token = app.signer.sign(app.store.get(job_id), 0)  # type: ignore[arg-type]
        told = post(token, str(number).encode(), headers={"idempotency-key": "ship-7"})
        assert (told.status, told.json) == (200, {"answer": "matched"})
        run()
        assert app.result(job_id, timeout=5) == {"paid": number}


def test_an_early_one_is_found_by_a_job_that_waits_under_another_key(
    app: Hipq, post: Post, queue: Queue, run: Callable[[], None]
) -> None:
    told: list[Any] = []

    @queue.job
    def batch(job: Job[Any]) -> Wait:
        token = app.signer.sign(app.store.get(job.id), 0)  # type: ignore[arg-type]
        told.append(post(token, b'"early"').status)
        return Wait(key="batch-1")

    job_id = batch.enqueue(key="mine")
    run()
    assert (told, app.job(job_id).state, app.job(job_id).result) == ([202], "final", "early")
    assert (app.job(job_id).key, app.job(job_id).wait_key) == ("mine", "batch-1")


def test_a_url_is_good_as_long_as_its_job_can_be_answered(
    app: Hipq, post: Post, queue: Queue, run: Callable[[], None], clock: HandClock
) -> None:
    @queue.job(timeout=60)
    def batch(_job: Job[Any]) -> Wait:
        return Wait(timeout=7 * 86_400)

    first, second, third = batch.enqueue_many([None] * 3)
    tokens = {job_id: app.signer.sign(app.store.get(job_id), 0) for job_id in (first, second, third)}  # type: ignore[arg-type]
    run()
    clock.advance(days=6)
    assert post(tokens[first], b"1").json == {"answer": "matched"}
    assert post(tokens[first], b"2").status == 409
    clock.advance(minutes=61)
    assert post(tokens[first], b"3").json == {"answer": "expired", "error": "This URL has expired."}
    clock.advance(hours=23)
    assert post(tokens[second], b"1").json == {"answer": "matched"}, "its time is over, and nobody has looked yet"
    clock.advance(hours=1)
    assert post(tokens[third], b"1").status == 410
    assert [one.data for one in app.answers.list(job=third)] == []


def test_a_bad_answer_id_is_refused(app: Hipq, post: Post, sign: Sign, waits: int) -> None:
    for value in ("x" * 501, "tab\there", "\x80"):
        status, sentence = refused(post(sign(waits), b"1", headers={"idempotency-key": value}))
        assert status == 400
        assert "answer_id" in sentence
    assert app.answers.list() == []


# -- queues, keys and stores -----------------------------------------------------------------------------------------
def test_an_answer_to_a_queue_that_only_others_declare_is_brought(
    app: Hipq, make_app: Callable[[], Hipq], sign: Sign, waits: int, run: Callable[[], None]
) -> None:
    """A callback server that is older than the workers must not lose answers."""
    older = make_app()
    application = callbacks(older)
    token = sign(waits)
    for body, status in ((b"1", 200), (b"2", 202)):
        told = asyncio.run(call(application, token, body))
        assert told
        assert told.status == status
    run()
    assert app.result(waits) == {"paid": 1}
    assert older.queues == [], "an engine of that program must not serve it"


def test_a_job_that_waits_under_another_key_meanwhile_gets_its_answer(
    app: Hipq, queue: Queue, run: Callable[[], None]
) -> None:
    kind = queue.job("charge")(lambda _: Wait(key="the bank's"))
    job_id = kind.enqueue(key="ours")
    row = app.store.get(job_id)
    assert row
    delivery = AnswerDelivery(app)
    claims = app.signer.read(app.signer.sign(row, 1 << 52))
    new = delivery.made(claims, CallbackRequest({"headers": [], "query_string": b""}), b"1")
    run()
    assert app.job(job_id).wait_key == "the bank's"
    assert delivery.deliver([new]) == ["matched"]
    assert app.result(job_id) == 1
    assert [(one.key, one.state) for one in app.answers.list()] == [("ours", "settled")]


def test_a_database_that_is_away_is_no_answer(
    app: Hipq, post: Post, sign: Sign, waits: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token = sign(waits)

    def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("PostgreSQL: secret host name")

    for verb in ("answer", "get"):
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "hipq"):
            patch.setattr(app.store, verb, away)
            for _ in range(10):
                told = post(token, b"1")
                assert (told.status, told.headers["retry-after"]) == (503, "1")
                assert "secret" not in str(told.json)
    assert 1 <= len(caplog.records) < 10, "not one for each of thousands"
    assert post(token, b"1").status == 200


def test_a_bug_is_told_in_a_sentence(
    app: Hipq, post: Post, sign: Sign, waits: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token = sign(waits)

    def broken(_: int) -> Row | None:
        raise ZeroDivisionError("private")

    monkeypatch.setattr(app.store, "get", broken)
    told = post(token, b"1")
    assert told.status == 500
    assert "private" not in str(told.json)
    assert "ZeroDivisionError" in caplog.text
    assert token not in caplog.text
