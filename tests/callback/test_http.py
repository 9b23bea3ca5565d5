"""Callbacks over real HTTP, to `hipq callbacks` in a process of its own: also from clients that mean no good."""

from __future__ import annotations

import gzip
import http.client
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hipq import Hipq
from tests.callback.serving import Served, hipq_callbacks, received, send, statuses
from tests.databases import fresh
from tests.engine.working import until


@pytest.fixture(scope="module")
def place(store_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("served")
    with fresh(store_kind, folder / "shop.db") as url:
        yield url, folder


@pytest.fixture(scope="module")
def shop(place: tuple[str, Path]) -> Iterator[Hipq]:
    app = Hipq("shop", place[0])
    app.migrate()
    app.queue("orders")
    yield app
    app.close()


@pytest.fixture(scope="module")
def served(shop: Hipq, place: tuple[str, Path]) -> Iterator[Served]:  # noqa: ARG001
    server = Served(place[1], place[0], *hipq_callbacks("--size", "1000", "--rate", "0", "--log-level", "debug"))
    yield server
    assert server.stop() == 0, server.log


@pytest.fixture
def tokens(shop: Hipq) -> Callable[[int], list[str]]:
    """Of so many new jobs."""

    def make(count: int) -> list[str]:
        (queue,) = shop.queues
        rows = [shop.store.get(job_id) for job_id in queue.enqueue_many("charge", [None] * count)]
        return [shop.signer.sign(row, shop.store.now() + 3600 * 1_000_000) for row in rows if row]

    return make


Tokens = Callable[[int], list[str]]


def head(token: str, *lines: str) -> bytes:
    return "\r\n".join([f"POST /{token} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def test_answers_come_over_http(served: Served, tokens: Tokens, shop: Hipq) -> None:
    (token,) = tokens(1)
    assert served.post(token, b'{"a": 1}', Content_Type="application/json") == (202, {"answer": "buffered"})
    assert served.post(token, b"2", Idempotency_Key="m1") == (202, {"answer": "buffered"})
    assert served.post(token, b"2", Idempotency_Key="m1") == (200, {"answer": "duplicate"})
    kept = shop.answers.list(job=shop.signer.read(token).job)
    assert [one.data for one in kept] == [{"a": 1}, 2]


def test_refusals_over_http(served: Served, tokens: Tokens) -> None:
    (token,) = tokens(1)
    assert served.post(token[:-1]).status == 403
    assert served.post("").status == 404
    assert served.post("%C3%A9" + token[2:]).status == 403
    assert served.post("a" * 30_000).status == 403
    assert served.post(token, b"\xff").status == 400
    assert served.post(token, gzip.compress(b"1"), Content_Encoding="gzip").status == 415
    assert served.post(token, b"x" * 1000).status == 202
    assert served.post(token, b"x" * 1001).status == 413
    for method in ("GET", "HEAD", "PUT"):
        connection = served.connection()
        connection.request(method, f"/{token}")
        response = connection.getresponse()
        assert (response.status, response.getheader("allow")) == (405, "POST")
        connection.close()


def test_requests_in_a_row_on_one_connection_each_have_their_reply(served: Served, tokens: Tokens) -> None:
    first, second = tokens(2)
    one = [head(token, "Content-Length: 1") + b"1" for token in (first, second, first[:-1], second)]
    assert served.raw(b"".join(one), 4) == [202, 202, 403, 202]


def test_the_body_of_a_refused_request_is_not_taken_for_the_next(served: Served, tokens: Tokens, shop: Hipq) -> None:
    (token,) = tokens(1)
    smuggled = head(token, "Content-Length: 9") + b'"hidden!"'
    large = smuggled + b" " * (1001 - len(smuggled))
    forged = head("A" * 76, f"Content-Length: {len(smuggled)}") + smuggled
    last = head(token, "Content-Length: 1") + b"1"
    assert served.raw(head(token, "Content-Length: 1001") + large + forged + last, 3) == [413, 403, 202]
    assert [one.data for one in shop.answers.list(job=shop.signer.read(token).job)] == [1]


def test_chunked_bodies_stop_at_the_size(served: Served, tokens: Tokens) -> None:
    (token,) = tokens(1)
    chunk = b"64\r\n" + b"x" * 100 + b"\r\n"
    start = head(token, "Transfer-Encoding: chunked")
    assert served.raw(start + chunk * 10 + b"0\r\n\r\n") == [202]
    assert served.raw(start + chunk * 11 + b"0\r\n\r\n") == [413]
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as link:
        link.sendall(start + chunk * 50)  # and no end
        assert statuses(link.recv(4096)) == [413]


def test_a_client_that_asks_first_hears_no_before_it_sends(served: Served, tokens: Tokens) -> None:
    (token,) = tokens(1)
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as link:
        link.sendall(head(token, "Content-Length: 5000", "Expect: 100-continue"))
        assert statuses(link.recv(4096)) == [413]
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as link:
        link.sendall(head(token, "Content-Length: 1", "Expect: 100-continue"))
        assert link.recv(4096).startswith(b"HTTP/1.1 100 ")
        link.sendall(b"1")
        assert statuses(link.recv(4096)) == [202]


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 1", "Content-Length: 2"],
        ["Content-Length: 1, 2"],
        ["Content-Length: x"],
        ["Content-Length: 1", "Transfer-Encoding: gzip"],
        [f"Header-{number}: value" for number in range(10_000)],
        ["Header: " + "x" * 200_000],
        ["No colon"],
    ],
    ids=lambda lines: lines[0][:20],
)
def test_broken_requests_are_refused_and_the_server_goes_on(served: Served, tokens: Tokens, lines: list[str]) -> None:
    (token,) = tokens(1)
    found = served.raw(head(token, *lines) + b"1")
    assert found in ([400], [431], [501], [])  # a client that is still sending may not hear it
    assert served.post(token).status == 202


def test_what_is_logged_says_the_job_and_nothing_that_opens_a_door(served: Served, tokens: Tokens, shop: Hipq) -> None:
    (token,) = tokens(1)
    served.post(token)
    served.post(token[:-1] + "!")
    served.post(token, b"\xff")
    log = served.log
    assert f"callback job={shop.signer.read(token).job} attempt=0 answer=buffered" in log
    assert "callback refused: 403" in log
    assert "callback refused: 400" in log
    secret = re.findall(r'"secret":"([^"]+)"', shop.store.notes("signing")["shop"])
    assert len(secret) == 1
    for hidden in (token, token.partition(".")[0], token.partition(".")[2], secret[0]):
        assert hidden not in log
    assert "Traceback" not in log


def test_a_body_that_drips_is_cut_off(place: tuple[str, Path], tokens: Tokens) -> None:
    url, folder = place
    (token,) = tokens(1)
    server = Served(folder, url, BODY_SECONDS="1.5")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(head(token, "Content-Length: 100"))
        began = time.monotonic()
        while time.monotonic() - began < 0.5:  # long before it hangs up: who sends after that may not hear why
            link.sendall(b"x")
            time.sleep(0.1)
        reply = received(link)
        assert statuses(reply) == [408]
        assert time.monotonic() - began < 25, "the connection was closed"
    assert server.post(token).status == 202
    assert server.stop() == 0


def test_a_server_that_is_stopped_finishes_what_it_has_begun(place: tuple[str, Path], tokens: Tokens) -> None:
    url, folder = place
    (token,) = tokens(1)
    server = Served(folder, url)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(head(token, "Content-Length: 2", "Expect: 100-continue"))
        assert link.recv(4096).startswith(b"HTTP/1.1 100 "), "so it has begun with that"
        link.sendall(b"1")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not takes_connections(server.port))
        link.sendall(b"2")
        assert statuses(link.recv(4096)) == [202]
    assert server.process.wait(60) == 0
    assert "Traceback" not in server.log


def takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except OSError:
        return False
    return True


def test_what_a_client_was_told_is_kept_if_the_server_is_killed(
    place: tuple[str, Path], shop: Hipq, tokens: Tokens
) -> None:
    url, folder = place
    server = Served(folder, url, *hipq_callbacks("--rate", "0"))
    told: list[str] = []

    def deliver(token: str, number: int) -> None:
        connection = server.connection()
        try:
            for count in range(100_000):
                name = f"kill-{number}-{count}"
                if send(connection, token, b"1", headers={"hipq-answer-id": name}).status == 202:
                    told.append(name)
        except (OSError, http.client.HTTPException):
            return

    threads = [threading.Thread(target=deliver, args=(token, number)) for number, token in enumerate(tokens(8))]
    for thread in threads:
        thread.start()
    while len(told) < 100 and server.process.poll() is None:
        time.sleep(0.01)
    os.kill(server.process.pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    server.process.wait()
    kept: set[str] = set()
    after = 0
    while page := shop.answers.list(after=after, limit=10_000):
        kept |= {one.answer_id for one in page}
        after = page[-1].id
    assert len(told) >= 100
    assert set(told) <= kept
