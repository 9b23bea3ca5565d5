"""Requests that are signed as Standard Webhooks says: a service verifies them with the reference library."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from hipq import Hipq, Invalid, Queue, fixed
from hipq.callback.asgi import callbacks
from hipq.requests import declared
from hipq.testing.clock import HandClock
from tests.callback.conftest import call
from tests.engine.conftest import app, clock, make_app, queue, url

__all__ = ["app", "clock", "make_app", "queue", "url"]

SECRET = f"whsec_{b64encode(bytes(range(24))).decode()}"


class Bank:
    """A service that looks at signatures, over the bytes that arrive, and fails as often as it is told."""

    def __init__(self) -> None:
        self.failures = 0
        self.arrived: list[tuple[str, bytes, dict[str, str]]] = []
        bank = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                bank.arrived.append((self.command, body, {name.lower(): text for name, text in self.headers.items()}))
                bank.failures -= 1
                self.send_response(500 if bank.failures >= 0 else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def bank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bank]:
    monkeypatch.setenv("BANK_SECRET", SECRET)
    bank = Bank()
    yield bank
    bank.close()


def run(app: Hipq) -> None:
    app.run(until_empty=True)


def test_what_is_sent_is_signed_byte_for_byte(app: Hipq, queue: Queue, bank: Bank) -> None:
    queue.request("charge", to=bank.url, body={"sum": "{data.sum}", "text": "für {key}"}, sign="BANK_SECRET")
    queue.request("off", to=f"{bank.url}/{{key}}", method="DELETE", sign="BANK_SECRET")
    queue.enqueue("charge", {"sum": 5}, key="örder 17")
    queue.enqueue("off", {"a": 1}, key="b")
    run(app)
    assert sorted((how, body) for how, body, _ in bank.arrived) == [
        ("DELETE", b""), ("POST", '{"sum":5,"text":"für örder 17"}'.encode())
    ]  # fmt: skip
    for _, body, headers in bank.arrived:
        Webhook(SECRET).verify(body, headers, json_parse=False)
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 100


def test_the_id_is_the_same_at_every_attempt_and_no_other_job_has_it(
    app: Hipq, queue: Queue, clock: HandClock, bank: Bank, tmp_path: Path
) -> None:
    charge = queue.request("charge", to=bank.url, sign="BANK_SECRET", retry=fixed(0))
    bank.failures = 2
    charge.enqueue({"sum": 5}, key="order-17")
    run(app)
    tries = [headers["webhook-id"] for _, _, headers in bank.arrived]
    assert [headers["hipq-attempt"] for _, _, headers in bank.arrived] == ["1", "2", "3"]
    assert len({*tries}) == 1
    assert "." not in tries[0]
    clock.advance(seconds=0.001)
    charge.enqueue({"sum": 5}, key="order-17")
    charge.enqueue({"sum": 5}, key="order-18")
    run(app)
    other = Hipq("shop", f"sqlite:///{tmp_path}/other.db", clock=clock)  # its first job has the number of ours
    other.queue("orders").request("charge", to=bank.url, sign="BANK_SECRET").enqueue({"sum": 5}, key="order-17")
    run(other)
    other.close()
    assert len({headers["webhook-id"] for _, _, headers in bank.arrived}) == 4


def test_the_time_is_that_of_the_attempt(app: Hipq, queue: Queue, bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.request("charge", to=bank.url, sign="BANK_SECRET", retry=fixed(0)).enqueue()
    times = iter([2_000_000_000.9, 2_000_000_400.0])
    monkeypatch.setattr(declared, "time", SimpleNamespace(time=lambda: next(times)))
    bank.failures = 1
    run(app)
    assert [headers["webhook-timestamp"] for _, _, headers in bank.arrived] == ["2000000000", "2000000400"]


def test_while_a_secret_changes_both_sign(app: Hipq, queue: Queue, bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = f"whsec_{b64encode(bytes(range(32))).decode()}"
    monkeypatch.setenv("BANK_SECRET", f"{newer} {SECRET}")
    queue.request("charge", to=bank.url, sign="BANK_SECRET").enqueue()
    run(app)
    ((_, body, headers),) = bank.arrived
    for one in (SECRET, newer):
        Webhook(one).verify(body, headers)


def test_without_its_secret_nothing_is_sent_and_the_retry_handler_decides(
    app: Hipq, queue: Queue, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BANK_SECRET")
    job_id = queue.request("charge", to=bank.url, sign="BANK_SECRET", retry=fixed(60)).enqueue()
    run(app)
    assert (app.job(job_id).state, bank.arrived) == ("retry", [])
    assert "$BANK_SECRET is not set: it must have the secret of a webhook, whsec_…" in str(app.job(job_id).fault)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sign": SECRET}, "sign is the name of the environment variable that has the secret, like BANK_SECRET"),
        ({"sign": "A", "headers": {"Webhook-Id": "{id}"}}, "sign makes the headers webhook-id, webhook-timestamp and"),
        ({"sign": "A", "to": "redis://a"}, "method, reply_key and sign are for requests by HTTP"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_declared(queue: Queue, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        queue.request("charge", **{"to": "https://bank.example/", **options})
    assert sentence in str(refused.value)
    assert SECRET not in str(refused.value)
    assert queue.job_types == []


def test_what_hipq_signs_hipq_takes(app: Hipq, queue: Queue, bank: Bank) -> None:
    """The signed request of one is the webhook of the other, as it was sent."""
    queue.request("charge", to=bank.url, sign="BANK_SECRET").enqueue({"ref": "order-18"}, key="order-17")
    run(app)
    ((_, body, headers),) = bank.arrived
    app.listen("webhook://shop", to=("orders", "charge"), key="ref", secret="BANK_SECRET")
    application = callbacks(app)
    told = [asyncio.run(call(application, "shop", body, headers=headers)) for _ in range(2)]
    assert [one.json for one in told if one] == [{"answer": "buffered"}, {"answer": "duplicate"}]
    changed = asyncio.run(call(application, "shop", body.replace(b"18", b"19"), headers=headers))
    assert changed
    assert changed.status == 401
