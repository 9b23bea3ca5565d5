"""Job types without code: a request by HTTP or on a stream, and what its reply means for the job."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import pytest

from hipq import Hipq, Invalid, Job, Queue, Wait, fixed, transports
from hipq.testing.clock import HandClock
from hipq.transports import address, source
from tests.brokers.redis import redis_url
from tests.engine.conftest import app, clock, make_app, queue, url

__all__ = ["app", "clock", "make_app", "queue", "url"]


class Service:
    """An HTTP service that replies as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, bytes, dict[str, str]]] = []
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                service.asked.append((self.command, self.path, headers, json.loads(body) if body else None))
                status, reply, more = service.replies.pop(0) if service.replies else (200, b"", {})
                self.send_response(status)
                for name, value in {**more, "content-length": str(len(reply))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply)

            do_POST = do_PUT = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def will(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.replies.append((status, body, {name.replace("_", "-"): value for name, value in headers.items()}))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


def run(app: Hipq) -> None:
    app.run(until_empty=True)


# -- what is sent ----------------------------------------------------------------------------------------------------
def test_the_data_is_sent_with_the_key_the_job_and_the_attempt(app: Hipq, queue: Queue, service: Service) -> None:
    charge = queue.request("charge", to=f"{service.url}/charges", retry=fixed(0))
    service.will(500)
    service.will(200, b'{"receipt": 9}')
    job_id = charge.enqueue({"amount": 5}, key="order-17")
    run(app)
    assert (app.job(job_id).code, app.job(job_id).result, app.job(job_id).exitcode) == ("ok", {"receipt": 9}, 200)
    assert [(way, path, data) for way, path, _, data in service.asked] == [("POST", "/charges", {"amount": 5})] * 2
    for number, (_, _, headers, _) in enumerate(service.asked, 1):
        assert headers["content-type"] == "application/json"
        said = [headers[name] for name in ("hipq-key", "hipq-job", "hipq-attempt")]
        assert said == ["order-17", str(job_id), str(number)]


def test_templates_fill_url_headers_and_body(app: Hipq, queue: Queue, service: Service) -> None:
    charge = queue.request(
        "charge",
        to=f"{service.url}/customers/{{data.customer}}/charges?ref={{key}}&try={{attempt}}",
        method="PUT",
        headers={"X-Ref": "{key}/{id}", "Authorization": "Bearer t0ken"},
        body={"sum": "{data.amount}", "text": "for {key}: {data.amount}", "list": ["{data.tags.1}", 7]},
    )
    job_id = charge.enqueue({"customer": "a/b?c", "amount": 5, "tags": ["x", {"y": 1}]}, key="ünï/17 %")
    run(app)
    assert app.job(job_id).code == "ok", app.job(job_id).error
    ((way, path, headers, body),) = service.asked
    assert (way, path) == ("PUT", "/customers/a%2Fb%3Fc/charges?ref=%C3%BCn%C3%AF%2F17%20%25&try=1")
    assert headers["authorization"] == "Bearer t0ken"
    assert body == {"sum": 5, "text": "for ünï/17 %: 5", "list": [{"y": 1}, 7]}
    assert headers["hipq-key"] == "%C3%BCn%C3%AF/17 %25"


def test_data_that_does_not_fill_a_template_is_a_failure_for_good(app: Hipq, queue: Queue, service: Service) -> None:
    charge = queue.request("charge", to=f"{service.url}/{{data.customer}}", retry=fixed(0))
    job_id = charge.enqueue({"amount": 5})
    run(app)
    assert (app.job(job_id).code, str(app.job(job_id).fault)) == ("failed", "the job's data has no field customer")
    assert (app.job(job_id).attempt, service.asked) == (1, [])


def test_a_callback_url_is_sent_that_brings_the_answer(make_app: Any, service: Service) -> None:
    app = make_app()
    app._callback_url = "https://shop.example/hipq/"
    orders = app.queue("orders")
    charge = orders.request("charge", to=service.url, callback=True)
    refund = orders.request("refund", to=service.url, body={"back": "{callback_url}"})
    ids = [charge.enqueue(key="a"), refund.enqueue(key="b")]
    run(app)
    assert [app.job(job_id).phase for job_id in ids] == ["waiting", "waiting"], "200 is not the answer"
    sent = {headers["hipq-key"]: (headers["hipq-callback"], body) for _, _, headers, body in service.asked}
    first, second = sent["a"][0], sent["b"][0]
    assert first.startswith("https://shop.example/hipq/")
    assert sent["b"][1] == {"back": second}
    claims = app.signer.read(first.rpartition("/")[2])
    assert (claims.job, claims.attempt) == (ids[0], 1)


# -- what the reply means --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "waits", "code", "phase"),
    [
        (200, False, "ok", "done"), (201, False, "ok", "done"), (204, False, "ok", "done"),
        (202, False, "NONE", "waiting"),
        (200, True, "NONE", "waiting"), (201, True, "NONE", "waiting"), (202, True, "NONE", "waiting"),
        (204, True, "NONE", "waiting"),
        (302, True, "failed", "done"), (400, True, "failed", "done"), (404, False, "failed", "done"),
        (500, True, "error", "done"), (503, False, "error", "done"),
        (408, True, "retry", "scheduled"), (425, True, "retry", "scheduled"), (429, False, "retry", "scheduled"),
    ],
)  # fmt: skip
def test_what_a_status_means(
    app: Hipq, queue: Queue, service: Service, status: int, waits: bool, code: str, phase: str
) -> None:
    charge = queue.request("charge", to=service.url, answers="redis://nowhere/answers" if waits else None)
    service.will(status)
    job_id = charge.enqueue()
    run(app)
    job = app.job(job_id)
    assert (job.code, job.phase) == (code, phase), job.error
    if code in ("failed", "error") and status >= 400:
        assert job.exitcode == status
    assert len(service.asked) == 1


def test_a_service_that_asks_for_time_is_given_it(app: Hipq, queue: Queue, service: Service, clock: HandClock) -> None:
    charge = queue.request("charge", to=service.url, retry=fixed(1, attempts=2))
    patient = queue.request("patient", to=service.url, retry=fixed(100, attempts=2))
    ids = []
    for status, job_type in ((503, charge), (429, charge), (503, patient)):
        service.will(status, retry_after="30")
        ids.append(job_type.enqueue())
        run(app)
    waits = [(app.job(job_id).scheduled_run_time - app.job(job_id).update_time).total_seconds() for job_id in ids]
    assert waits == [30, 30, 100], "it waits as long as it is asked, and as its own rule says"
    assert [app.job(job_id).failures for job_id in ids] == [1, 0, 1]
    clock.advance(seconds=31)
    run(app)
    assert [app.job(job_id).code for job_id in ids] == ["ok", "ok", "error"]


def test_the_reply_may_name_the_key_of_the_answer(app: Hipq, queue: Queue, service: Service) -> None:
    batch = queue.request("batch", to=service.url, answers="redis://nowhere/answers", reply_key="batch.id")
    service.will(200, b'{"batch": {"id": 77}}')
    job_id = batch.enqueue(key="mine")
    run(app)
    assert (app.job(job_id).phase, app.job(job_id).wait_key) == ("waiting", "77")
    assert batch.answer("77", "done") == "matched"
    assert app.result(job_id) == "done"


def test_a_service_that_is_not_there_is_an_error_for_the_retry_handler(app: Hipq, queue: Queue) -> None:
    charge = queue.request("charge", to="http://user:secret@127.0.0.1:9/x?token=secret", retry=fixed(5, attempts=3))
    job_id = charge.enqueue()
    run(app)
    assert app.job(job_id).state == "retry"
    assert "127.0.0.1:9" in app.job(job_id).error
    assert "secret" not in app.job(job_id).error


# -- by a stream -----------------------------------------------------------------------------------------------------
class Alone:
    def take(self, _part: str) -> str:
        return ""

    def keep(self, _part: str, _position: str) -> bool:
        return True

    def read(self) -> dict[str, str]:
        return {}

    def leave(self, _part: str) -> None:
        pass


def test_a_request_by_a_stream_and_its_answer_by_another(app: Hipq, queue: Queue) -> None:
    out, back = (f"{redis_url()}/hipq-test-{uuid4().hex}" for _ in range(2))
    charge = queue.request("charge", to=out, answers=back, key="ref", error="bad", headers={"X-Sum": "{data.amount}"})
    requests = source(address(out), "service", Alone())
    answers = source(address(back), "nobody", Alone())
    try:
        ids = charge.enqueue_many([{"amount": n} for n in (5, 6)], keys=["a", "b"])
        run(app)
        assert [app.job(job_id).phase for job_id in ids] == ["waiting", "waiting"]
        got = sorted(requests.receive(10, 5), key=lambda message: message.key)
        assert [(one.json, one.key, one.headers["hipq-job"], one.headers["x-sum"]) for one in got] == [
            ({"amount": 5}, "a", str(ids[0]), "5"), ({"amount": 6}, "b", str(ids[1]), "6"),
        ]  # fmt: skip
        from hipq import transports

        for one in got:
            transports.send(back, {"ref": one.key, "bad": one.key == "b"})
        with app.working():
            assert app.result(ids[0], timeout=60) == {"ref": "a", "bad": False}
            with pytest.raises(Exception, match='"bad":true'):
                app.result(ids[1], timeout=60)
    finally:
        requests.close()
        answers.close()
        import redis

        redis.Redis.from_url(redis_url()).delete(*(one.rpartition("/")[2] for one in (out, back)))


# -- declaring -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"to": "ftp://host/x"}, "is no URL of a stream"),
        ({"to": "http://{data.host}/x"}, "a job may not choose the server"),
        ({"to": "http://h/{nonsense}"}, "is nothing a template knows"),
        ({"to": "http://h/", "method": "FETCH"}, "method must be one of POST, PUT"),
        ({"to": "http://h/", "headers": {"x": "a\nb"}}, "would contain a line break"),
        ({"to": "http://h/", "headers": "x"}, "headers must be a mapping"),
        ({"to": "http://h/", "key": "ref"}, "key says how to read answers, and answers= does not say where"),
        ({"to": "redis://h/x", "method": "PUT"}, "method, reply_key and sign are for requests by HTTP"),
        ({"to": "redis://h/x?what=1"}, "there is no option 'what'"),
        ({"to": "http://h/", "answers": "http://h/back"}, "is no URL of a stream"),
        ({"to": "http://h/", "callback": True, "reply_key": "id"}, "there is no reply_key to look for"),
        ({"to": "http://h/", "reply_key": "a..b"}, "a path into JSON is names with dots"),
        ({"to": "http://h/", "send_timeout": 0}, "send_timeout"),
        ({"to": "http://h/", "body": {"x": float("nan")}}, "the template of a body contains nan"),
    ],
)
def test_what_is_wrong_with_a_request_is_said_when_it_is_declared(
    queue: Queue, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Invalid, match=sentence.replace("(", r"\(")):
        queue.request("charge", **options)
    assert [one.name for one in queue.job_types if one.spec.fn] == []


# -- what the history says of it -------------------------------------------------------------------------------------
@pytest.mark.parametrize("process", [False, True])
def test_the_history_says_which_server_the_request_of_each_attempt_went_to_and_nothing_secret(
    app: Hipq, queue: Queue, service: Service, process: bool
) -> None:
    secret = service.url.replace("http://", "http://ann:secret@") + "/hooks/secret?token=secret"
    charge = queue.request("charge", to=secret, retry=fixed(0), process=process, headers={"authorization": "secret"})
    service.will(500)
    service.will(200)
    job_id = charge.enqueue({}, key="k")
    run(app)
    history = app.job(job_id).history
    assert [entry["event"] for entry in history] == ["claimed", "sent", "error", "again", "claimed", "sent", "ok"]
    assert [entry["to"] for entry in history if entry["event"] == "sent"] == [f"POST {service.url}"] * 2
    row = app.store.get(job_id)
    assert row is not None
    assert "secret" not in row.history


def test_code_that_sends_by_a_transport_leaves_the_same_trace_at_the_moment_it_sends(
    app: Hipq, queue: Queue, service: Service, clock: HandClock
) -> None:
    @queue.job
    def charge(job: Job[Any]) -> Wait:
        clock.advance(seconds=2)
        for _ in range(7):
            transports.send(f"{service.url}/charges?token=secret", {}, job=job)
        clock.advance(seconds=3)
        return Wait()

    began = clock.now()
    job_id = charge.enqueue({})
    run(app)
    sent = [entry for entry in app.job(job_id).history if entry["event"] == "sent"]
    assert len(service.asked) == 7
    assert [(entry["to"], (entry["at"].timestamp() * 1e6 - began) / 1e6) for entry in sent] == [
        (f"POST {service.url}", 2.0)
    ] * 5, "a run that sends very many is not to fill its history with that"
