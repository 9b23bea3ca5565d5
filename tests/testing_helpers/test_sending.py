"""Under the harness nothing is sent: requests and messages are recorded, and answered by the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import pytest
from redis import Redis

from hipq import Answer, Failed, Hipq, Invalid, Job, JobType, Ok, Wait, fixed, transports
from hipq.errors import TransportUnavailable
from hipq.testing import Harness, harness
from hipq.transports import http
from hipq.transports.base import Outgoing
from hipq.waiter import Waiter
from tests.brokers.nats import nats_url
from tests.brokers.redis import redis_url


@pytest.fixture
def stream() -> Iterator[str]:
    """A stream on a real server; nothing is on it."""
    name = f"payments-{uuid4().hex}"
    yield f"{redis_url()}/{name}"
    with Redis.from_url(redis_url()) as server:
        server.delete(name)


def length(stream: str) -> int:
    with Redis.from_url(redis_url()) as server:
        return int(server.xlen(stream.rpartition("/")[2]))


@pytest.fixture
def bank() -> Iterator[tuple[str, list[str]]]:
    """A real HTTP server: its URL, and what it was asked."""
    asked: list[str] = []

    class Bank(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bank)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_declared_request_is_recorded_and_answered(app: Hipq, stream: str, db: str) -> None:
    charge = app.queue("orders").request("charge", to=stream, answers=f"{stream}-in", headers={"Shop": "{data.shop}"})

    @charge.answered
    def settled(_job: Job[Any], answer: Answer) -> Any:
        return Ok(answer.data) if answer.data["status"] == "paid" else Failed("declined")

    with harness(app, db=db) as world:
        first = charge.enqueue({"amount": 5, "shop": "north"}, key="order-17")
        charge.enqueue({"amount": 6, "shop": "south"}, key="order-18")
        world.run_until_idle()
        sent, other = world.sent
        assert (sent.to, sent.data, sent.key, sent.job) == (stream, {"amount": 5, "shop": "north"}, "order-17", first)
        assert sent.body == b'{"amount":5,"shop":"north"}'
        assert sent.headers == {
            "hipq-key": "order-17", "hipq-job": str(first), "hipq-attempt": "1", "shop": "north",
        }  # fmt: skip
        assert (sent.method, sent.at) == ("", world.now)
        assert sent.answer({"status": "paid"}, answer_id="1") == "matched"
        assert sent.answer({"status": "paid"}, answer_id="1") == "duplicate"
        other.answer({"status": "declined"})
        world.run_until_idle()
        world.assert_ok(first, result={"status": "paid"})
        world.assert_failed(charge, "order-18", error="declined")
    assert length(stream) == 0


def test_every_sending_verb_is_recorded(app: Hipq, stream: str, bank: tuple[str, list[str]]) -> None:
    url, asked = bank
    nats = f"{nats_url()}/payments.{uuid4().hex}"
    made_before = transports.sender(stream)  # a program may keep one
    queue = app.queue("orders")

    @queue.job
    def tell(job: Job[Any]) -> None:
        transports.send(stream, {"n": 1})
        transports.send(nats, b"two", key="k")  # no stream has this subject: a server would refuse it
        assert transports.send(f"{url}/three", job=job)
        http.request("POST", f"{url}/four", b"4")
        transports.sender(stream).send(Outgoing(b"5"), 5)
        made_before.send(Outgoing(b"6"), 5)
        Waiter(endpoint_url=url, region="eu-west-1").send("later", "7", delay=3600)

    queue.request("pay", to=f"{url}/pay/{{key}}", method="POST")
    with harness(app) as world:
        tell.enqueue(key="t")
        queue.enqueue("pay", {"amount": 5}, key="p")
        world.run_until_idle(raise_errors=True)
        world.assert_ok(tell, "t")
        assert [(one.method, one.to, one.key) for one in world.sent] == [
            ("", stream, "t"), ("", nats, "k"), ("POST", f"{url}/three", "t"), ("POST", f"{url}/four", "t"),
            ("", stream, "t"), ("", stream, "t"), ("", "sqs://later", "t"), ("POST", f"{url}/pay/p", "p"),
        ]  # fmt: skip
        assert {one.job for one in world.sent[:-1]} == {world.job(tell, "t").id}
        transports.send(stream, "by nobody")
        assert (world.sent[-1].job, world.sent[-1].data) == (None, "by nobody")
        with pytest.raises(Invalid, match="no job sent this"):
            world.sent[-1].answer()
    assert asked == []
    assert length(stream) == 0


def test_listeners_do_not_connect(app: Hipq, stream: str) -> None:
    charge = app.queue("orders").request("charge", to=stream, answers=stream, key="ref")
    with Redis.from_url(redis_url()) as server:
        server.xadd(stream.rpartition("/")[2], {"body": b'{"ref": "order-17"}'})  # somebody's real answer
    with harness(app) as world:
        charge.enqueue({"amount": 5}, key="order-17")
        app.run(until_empty=True)
        with app.working():
            pass
        (listener,) = app.streams.listeners()
        with pytest.raises(Invalid, match="a test connects to no server"):
            listener._listen()
        world.assert_waiting(charge, "order-17")
        assert [one.key for one in world.sent] == ["order-17"]
        with Redis.from_url(redis_url()) as server:
            assert server.xinfo_groups(stream.rpartition("/")[2]) == []
    assert length(stream) == 1


@pytest.mark.parametrize("apart", [False, True])
def test_handlers_in_processes_cannot_send_either(app: Hipq, stream: str, apart: bool) -> None:
    queue = app.queue("orders")

    @queue.job(process=True)
    def tell(_job: Job[Any]) -> None:
        transports.send(stream, {"n": 1})

    with harness(app) as world:
        tell.enqueue(key="t")
        if apart:
            app.run(until_empty=True)  # real processes
            world.assert_failed(tell, "t", error="a child process of a test sends nothing")
        else:
            world.run_until_idle()
            world.assert_ok(tell, "t")
            assert len(world.sent) == 1
    assert length(stream) == 0


def test_really_sending_is_asked_for_by_name(app: Hipq, stream: str, bank: tuple[str, list[str]]) -> None:
    url, asked = bank
    queue = app.queue("orders")
    queue.request("tell", to=stream)
    queue.request("pay", to=f"{url}/pay/{{key}}")
    with harness(app, send_for_real=True) as world:
        queue.enqueue("tell", key="t")
        queue.enqueue("pay", key="p")
        world.run_until_idle()
        assert world.sent == []
    assert length(stream) == 1
    assert asked == ["/pay/p"]
    transports.send(stream)  # after a test, and without one
    assert length(stream) == 2


def test_of_two_harnesses_the_one_whose_handler_sends_has_it(app: Hipq, stream: str) -> None:
    bank = Hipq("bank", "sqlite://")
    pay = app.queue("orders").request("pay", to=stream)
    book = bank.queue("books").request("book", to=stream)
    with harness(app) as shop, harness(bank) as other:
        pay.enqueue(key="p")
        book.enqueue(key="b")
        shop.run_until_idle()
        other.run_until_idle()
        assert [one.key for one in shop.sent] == ["p"]
        assert [one.key for one in other.sent] == ["b"]
    bank.close()


def test_several_apps_in_one_harness_are_told_apart(app: Hipq, stream: str) -> None:
    bank = Hipq("bank", "sqlite://")
    pay = app.queue("orders").request("pay", to=stream, callback=False, answers=f"{stream}-1")
    book = bank.queue("books").request("book", to=stream, answers=f"{stream}-2")
    with harness(app, bank) as world:
        assert pay.enqueue() == book.enqueue()  # each has a database of its own
        world.run_until_idle()
        for one in world.sent:
            one.answer(one.to)
        world.assert_empty()
    bank.close()


@pytest.fixture
def pay(app: Hipq) -> JobType:
    return app.queue("orders").request("pay", to="https://bank.example/pay/{key}", retry=fixed(60, attempts=3))


def test_requests_by_http_get_the_replies_that_a_test_gives(shop: Harness, pay: JobType) -> None:
    pay.enqueue(key="1")
    shop.run_until_idle()
    shop.assert_ok(pay, "1", result=None)
    shop.responds("https://bank.example/", {"id": 17})
    shop.responds("https://bank.example/pay/3", "gone", status=410)
    shop.responds("https://bank.example/pay/4", lambda sent: {"you sent": sent.data})
    shop.responds("https://bank.example/pay/5", status=429, headers={"Retry-After": "30"})
    for number in range(2, 6):
        pay.enqueue({"n": number}, key=str(number))
    shop.run_until_idle()
    shop.assert_ok(pay, "2", result={"id": 17})
    shop.assert_failed(pay, "3", error="410 Gone")
    shop.assert_ok(pay, "4", result={"you sent": {"n": 4}})
    shop.assert_scheduled(pay, "5", at=shop.now.replace(second=30))
    shop.responds("https://bank.example/pay/5", status=202)
    shop.advance(seconds=30)
    shop.sent[-1].answer("at last")
    shop.assert_ok(pay, "5", result="at last", attempts=2)


def test_a_server_that_cannot_be_reached(shop: Harness, pay: JobType) -> None:
    shop.responds("https://bank.example/", TransportUnavailable("no route to the bank"))
    pay.enqueue(key="1")
    shop.run_until_idle()
    shop.assert_scheduled(pay, "1", error="no route to the bank")


def test_an_answer_names_its_attempt_and_the_key_of_the_wait(app: Hipq) -> None:
    queue = app.queue("orders")

    @queue.job(fence="attempt", timeout=60, retry=fixed(60))
    def charge(job: Job[Any]) -> Wait:
        transports.send("redis://payments", job=job)
        return Wait(key="theirs")

    with harness(app) as world:
        job = charge.enqueue(key="ours")
        world.advance(minutes=2)
        first, second = world.sent
        assert first.answer("too late") == "late"
        assert second.answer("paid") == "matched"
        world.assert_ok(job, result="paid")


def test_a_message_that_comes_is_read_as_the_application_says(app: Hipq) -> None:
    queue = app.queue("orders")
    charge = queue.request(
        "charge", to="redis://payments-out", answers="redis://payments-in", key="ref", data="status",
        error=lambda message: message.json["status"] == "busy", retry=fixed(60),
    )  # fmt: skip
    with harness(app) as world:
        charge.enqueue(key="order-17")
        world.run_until_idle()
        world.receive("redis://payments-in", {"ref": "order-17", "status": "busy"})
        world.run_until_idle()
        world.assert_scheduled(charge, "order-17", at=world.now.replace(minute=1))
        world.advance(minutes=1)
        world.receive("redis://payments-in", {"ref": "order-17", "status": "paid"})
        world.assert_ok(charge, "order-17", result="paid")
        world.receive("redis://payments-in", b"hello?")
        assert app.answers.counts("orders")["unreadable"].answers == 1
        with pytest.raises(Invalid, match="nobody listens to redis://payments-out"):
            world.receive("redis://payments-out")
        with pytest.raises(Invalid, match="nobody listens to webhook://bank"):
            world.receive("webhook://bank")


def test_a_webhook_that_comes_is_read_as_the_application_says(app: Hipq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_SECRET", "whsec_" + "c2VjcmV0" * 5)
    charge = app.queue("orders").job("charge")(lambda _: Wait())
    app.listen("webhook://bank", to=charge, key="data.ref", data="data.status", secret="BANK_SECRET")
    with harness(app) as world:
        charge.enqueue(key="order-17")
        world.run_until_idle()
        for _ in range(2):  # the service sends it twice
            world.receive(
                "webhook://bank", {"data": {"ref": "order-17", "status": "paid"}}, headers={"webhook-id": "1"}
            )
        world.assert_ok(charge, "order-17", result="paid")
        assert [one.copies for one in app.answers.list("orders")] == [2]
