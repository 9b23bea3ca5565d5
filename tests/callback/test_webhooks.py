"""Webhooks at a URL that stays the same: signed by the reference library of Standard Webhooks, on each store."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from standardwebhooks.webhooks import Webhook

from hipq import Hipq, Invalid, Wait, fixed
from hipq.callback.asgi import callbacks
from hipq.events import Event
from hipq.observe.prometheus import Collector
from tests.callback.conftest import Post, Told, call
from tests.callback.serving import Served, hipq_callbacks

SECRET = f"whsec_{b64encode(bytes(range(24))).decode()}"
BANK = "webhook://bank"
Send = Callable[..., Told]


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_SECRET", SECRET)
    monkeypatch.setattr(logging.getLogger("hipq"), "propagate", True)


def signed(body: bytes, message_id: str = "msg_1", secret: str = SECRET, seconds: float = 0) -> dict[str, str]:
    at = datetime.now(UTC).timestamp() + seconds
    signature = Webhook(secret).sign(message_id, datetime.fromtimestamp(at, UTC), body.decode())
    return {"webhook-id": message_id, "webhook-timestamp": str(int(at)), "webhook-signature": signature}


@pytest.fixture
def send(post: Post) -> Send:
    """Sends a webhook as a bank does."""

    def do(data: Any, message_id: str = "msg_1", **headers: str) -> Told:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        return post("bank", body, headers={**signed(body, message_id), **headers})

    return do


@pytest.fixture
def waits(app: Hipq, charge: Any, run: Callable[[], None]) -> int:
    """A job that waits for the bank."""
    app.listen(BANK, to=charge, key="data.reference", error="data.failed", secret="BANK_SECRET")
    job_id: int = charge.enqueue(key="order-17")
    run()
    return job_id


def paid(reference: str = "order-17", **more: Any) -> dict[str, Any]:
    return {"type": "payment.paid", "data": {"reference": reference, **more}}


# -- what is taken ---------------------------------------------------------------------------------------------------
def test_a_signed_webhook_answers_the_job_that_its_body_names(
    app: Hipq, send: Send, waits: int, run: Callable[[], None]
) -> None:
    told = send(paid())
    assert (told.status, told.json) == (200, {"answer": "matched"})
    run()
    assert app.job(waits).result == {"paid": paid()}
    (kept,) = app.answers.list()
    assert (kept.answer_id, kept.attempt) == ("msg_1", 0)


def test_one_that_is_sent_again_or_replayed_is_a_duplicate(
    app: Hipq, send: Send, waits: int, run: Callable[[], None]
) -> None:
    assert [send(paid()).json["answer"] for _ in range(2)] == ["matched", "duplicate"]
    run()
    assert send(paid()).json == {"answer": "duplicate"}
    assert app.job(waits).attempt == 1


def test_what_is_kept_is_a_success_to_its_sender_also_when_it_is_late(
    app: Hipq, charge: Any, send: Send, waits: int, run: Callable[[], None]
) -> None:
    """410 says to a sender that it should send no more, to no job."""
    app.cancel(waits)
    charge.enqueue(key="order-18")
    run()
    send(paid("order-18"), "msg_2")
    run()
    told = [send(paid()), send(paid("order-18", n=2), "msg_3"), send(paid("order-19"), "msg_4")]
    answers = [(one.status, one.json["answer"]) for one in told]
    assert answers == [(200, "late"), (200, "conflict"), (202, "buffered")]


def test_a_webhook_may_say_that_the_work_failed(app: Hipq, queue: Any, send: Send, run: Callable[[], None]) -> None:
    refund = queue.job("refund", retry=fixed(60))(lambda _: Wait())
    app.listen(BANK, to=refund, key="data.reference", error="data.failed", secret="BANK_SECRET")
    job_id = refund.enqueue(key="r-1")
    run()
    assert send(paid("r-1", failed=True, why="no money")).json == {"answer": "matched"}
    run()
    assert "no money" in str(app.job(job_id).fault)


def test_a_structured_event_in_it_is_read_as_one(app: Hipq, queue: Any, send: Send, run: Callable[[], None]) -> None:
    refund = queue.job("refund")(lambda _: Wait())
    app.listen(BANK, to=refund, secret="BANK_SECRET")
    job_id = refund.enqueue(key="r-1")
    run()
    about = {"specversion": "1.0", "id": "e-1", "source": "/bank", "type": "paid", "subject": "r-1"}
    assert send({**about, "data": {"receipt": 9}}).json == {"answer": "matched"}
    assert app.job(job_id).result == {"receipt": 9}
    assert [one.answer_id for one in app.answers.list()] == ["msg_1"], "the id that is signed"


def test_headers_that_are_not_signed_change_nothing(
    app: Hipq, charge: Any, send: Send, waits: int, run: Callable[[], None]
) -> None:
    """Who has seen a webhook may send it once more within five minutes, with other headers."""
    other = charge.enqueue(key="order-18")
    run()
    event = {"ce-specversion": "1.0", "ce-id": "9", "ce-source": "/x", "ce-type": "x", "ce-subject": "order-18"}
    ours = {"hipq-key": "order-18", "hipq-error": "true", "hipq-attempt": "7", "idempotency-key": "x"}
    told = send(paid(), **event, **ours, **{"content-type": "application/cloudevents+json"})
    assert told.json == {"answer": "matched"}
    run()
    assert app.job(waits).result == {"paid": paid()}
    assert (app.job(other).phase, [one.answer_id for one in app.answers.list()]) == ("waiting", ["msg_1"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"hello", "the message is not JSON"), (b'{"data": {}}', "key: the message has no field data.reference")],
)
@pytest.mark.usefixtures("waits")
def test_one_that_cannot_be_read_is_kept_and_not_sent_again(app: Hipq, send: Send, body: bytes, reason: str) -> None:
    told = send(body)
    assert (told.status, told.json) == (202, {"answer": "unreadable"})
    (kept,) = app.answers.list(state="unreadable")
    assert reason in kept.note


def test_a_request_s_answer_may_come_as_a_webhook(app: Hipq, queue: Any, send: Send) -> None:
    ship = queue.request("ship", to="https://bank.example/", answers=BANK, key="data.reference", secret="BANK_SECRET")
    assert send(paid("s-1")).json == {"answer": "buffered"}
    assert [(one.type, one.key) for one in app.answers.list()] == [("ship", "s-1")]
    assert app.streams.webhooks["bank"].to == f"orders.{ship.name}"


# -- what is refused -------------------------------------------------------------------------------------------------
def test_what_is_not_signed_well_is_refused_counted_and_not_kept(
    app: Hipq, post: Post, waits: int, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    app.events.subscribe(heard.append)
    registry = CollectorRegistry()
    registry.register(Collector(app, database=False))
    body = json.dumps(paid()).encode()
    other = f"whsec_{b64encode(bytes(24)).decode()}"
    bad = [
        ({}, "a webhook is signed: it has the headers webhook-id, webhook-timestamp and webhook-signature"),
        (signed(body, secret=other), "its signature is not by the secret of this webhook, or its body was changed"),
        (signed(body + b" "), "its signature is not by the secret of this webhook, or its body was changed"),
        ({**signed(body), "webhook-id": "msg_2"}, "its signature is not by the secret of this webhook, or its body"),
        (signed(body, seconds=-310), "its webhook-timestamp is too old: it may differ from the clock here by 300 sec"),
        (signed(body, seconds=310), "its webhook-timestamp is in the future: "),
    ]
    with caplog.at_level(logging.DEBUG, "hipq"):
        for headers, sentence in bad:
            told = post("bank", body, headers=headers)
            assert told.status == 401
            assert told.json["error"].startswith(sentence)
    assert app.answers.list() == []
    assert app.job(waits).phase == "waiting"
    refused = [event for event in heard if event.name == "webhook refused"]
    assert [(one.queue, one.details["listener"]) for one in refused] == [("orders", "orders.charge webhook://bank")] * 6
    assert 'hipq_webhooks_refused_total{listener="orders.charge"} 6.0' in generate_latest(registry).decode()
    assert "not by the secret" in caplog.text
    assert SECRET.removeprefix("whsec_") not in caplog.text + repr(heard)


def test_guessing_signatures_is_slowed_down(app: Hipq, waits: int) -> None:
    application = callbacks(app, rate=10)
    told = [asyncio.run(call(application, "bank", b"{}", headers=signed(b"x"))) for _ in range(4)]
    assert [one.status for one in told if one] == [401, 401, 429, 429]
    assert app.job(waits).phase == "waiting"


@pytest.mark.usefixtures("waits")
def test_other_names_and_methods_are_refused(post: Post) -> None:
    body = json.dumps(paid()).encode()
    assert post("bakn", body, headers=signed(body)).status == 403
    assert post("bank", body, headers=signed(body), method="PUT").status == 405


@pytest.mark.usefixtures("waits")
def test_without_its_secret_nothing_is_taken_and_the_log_says_why(
    app: Hipq, send: Send, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("BANK_SECRET")
    with caplog.at_level(logging.WARNING, "hipq"):
        told = send(paid())
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert told.json == {"error": "signatures cannot be checked here right now; try again"}
    assert "$BANK_SECRET is not set" in caplog.text
    assert app.answers.list() == []


@pytest.mark.parametrize(
    ("place", "options", "sentence"),
    [
        (BANK, {}, "webhook://bank needs secret=, the environment variable that has its secret: else anybody could"),
        (BANK, {"secret": SECRET}, "secret is the name of the environment variable that has the secret, like BANK_SE"),
        ("webhook://", {"secret": "A"}, "a webhook is named like webhook://bank: 1 to 30 lower case letters"),
        ("webhook://bank/charges", {"secret": "A"}, "a webhook is named like webhook://bank"),
        ("webhook://bank?group=a", {"secret": "A"}, "a webhook is named like webhook://bank"),
        ("webhook://" + "b" * 31, {"secret": "A"}, "a webhook is named like webhook://bank"),
        ("redis://a", {"secret": "A"}, "secret is for webhooks, like webhook://bank: who may write to a stream is up"),
    ],
)
def test_what_is_wrong_with_a_webhook_is_said_when_it_is_declared(
    app: Hipq, charge: Any, place: str, options: dict[str, Any], sentence: str
) -> None:
    mails = app.queue("mails")
    declare: list[Callable[[], object]] = [
        lambda: app.listen(place, to=charge, **options),
        lambda: mails.request("ask", to="https://a.example/", answers=place, **options),
    ]
    for one in declare:
        with pytest.raises(Invalid) as refused:
            one()
        assert str(refused.value).startswith(sentence)
        assert SECRET not in str(refused.value)
    assert (app.streams.webhooks, app.streams.listeners()) == ({}, [])
    assert mails.job_types == []


def test_each_job_type_has_a_webhook_of_its_own(app: Hipq, charge: Any, queue: Any) -> None:
    app.listen(BANK, to=charge, secret="BANK_SECRET")
    with pytest.raises(
        Invalid, match=r"^webhook://bank is listened to for orders.charge: each job type needs its own$"
    ):
        app.listen(BANK, to=queue.job("refund")(lambda _: Wait()), secret="BANK_SECRET")


def test_secret_says_how_to_read_answers(queue: Any) -> None:
    with pytest.raises(Invalid, match=r"^secret says how to read answers, and answers= does not say where"):
        queue.request("ask", to="https://a.example/", secret="BANK_SECRET")


# -- over HTTP -------------------------------------------------------------------------------------------------------
WEBHOOKS = """
orders = app.queue("bills")
app.listen("webhook://bank", to=("bills", "bill"), key="ref", secret="BANK_SECRET")
"""


def test_hipq_callbacks_takes_them_and_says_where(app: Hipq, url: str, tmp_path: Path) -> None:
    app.queue("bills")
    (tmp_path / "bills.py").write_text(f"from shop import app\n{WEBHOOKS}")
    command = [word.replace("shop:app", "bills:app") for word in hipq_callbacks()]
    server = Served(tmp_path, url, *command)
    body = b'{"ref": "b-1", "paid": true}'
    told = server.post("bank", body, path="/hipq/", **{k.replace("-", "_"): v for k, v in signed(body).items()})
    assert told == (202, {"answer": "buffered"})
    assert server.post("bank", body).status == 401
    assert "webhooks for bills.bill: https://shop.example/hipq/bank" in server.log
    assert server.stop() == 0
    assert "webhook refused" in server.log
    assert "whsec_" not in server.log
    assert [(one.key, one.answer_id) for one in app.answers.list()] == [("b-1", "msg_1")]


@pytest.mark.usefixtures("app")
def test_hipq_callbacks_starts_without_a_secret_and_refuses_that_webhook(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"ref": "b-1", "paid": true}'
    headers = {name.replace("-", "_"): value for name, value in signed(body).items()}
    monkeypatch.delenv("BANK_SECRET")
    (tmp_path / "bills.py").write_text(f"from shop import app\n{WEBHOOKS}")
    command = [word.replace("shop:app", "bills:app") for word in hipq_callbacks()]
    server = Served(tmp_path, url, *command)
    assert server.post("bank", body, path="/hipq/", **headers).status == 503
    assert server.stop() == 0
    assert "$BANK_SECRET is not set: it must have the secret of a webhook" in server.log
