"""What the client does when things go wrong: it tries again what does no harm, and says the rest in hipq's errors."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hipq.client import AsyncClient, Client
from hipq.errors import (
    Conflict,
    DaemonUnavailable,
    DuplicateKey,
    HipqError,
    Invalid,
    JobFailed,
    NotFound,
    OverQuota,
    Unauthorized,
)
from tests.client.scripted import CUT, Scripted, scripted

IDS: Scripted = (201, {"ids": ["65537"]}, {})
AWAY: Scripted = (503, {"error": "away"}, {})

Do = Callable[[Any], Any]


def plainly(url: str, do: Do, patience: float) -> Any:
    with Client(url, "t", tenant="acme", patience=patience) as client:
        return do(client)


def in_a_task(url: str, do: Do, patience: float) -> Any:
    async def run() -> Any:
        async with AsyncClient(url, "t", tenant="acme", patience=patience) as client:
            return await do(client)

    return asyncio.run(run())


@pytest.fixture(params=[plainly, in_a_task])
def asked(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Both clients must do the same."""

    def ask(url: str, do: Do, patience: float = 20.0) -> Any:
        return request.param(url, do, patience)

    return ask


def test_what_is_not_taken_now_is_sent_again_under_the_same_key(asked: Callable[..., Any]) -> None:
    with scripted(AWAY, (429, {"error": "behind"}, {"retry-after": "0"}), CUT, IDS) as server:
        assert asked(server.url, lambda client: client.add("resize", "a")) == ["65537"]
        assert len({one.headers["idempotency-key"] for one in server.asked}) == 1
        assert len({one.body for one in server.asked}) == 1
        assert len(server.asked) == 4
        assert server.asked[0].headers["authorization"] == "Bearer t"


def test_two_adds_are_two_even_if_they_are_alike(asked: Callable[..., Any]) -> None:
    with scripted(IDS, IDS) as server:
        for _ in range(2):
            asked(server.url, lambda client: client.add("resize", "a"))
        assert len({one.headers["idempotency-key"] for one in server.asked}) == 2


def test_a_key_that_is_under_way_is_asked_for_again(asked: Callable[..., Any]) -> None:
    with scripted((409, {"error": "under way"}, {"retry-after": "0"}), IDS) as server:
        assert asked(server.url, lambda client: client.add("resize", "a")) == ["65537"]


def test_what_may_have_been_done_is_not_done_again(asked: Callable[..., Any]) -> None:
    with scripted(CUT, CUT, CUT) as server:
        with pytest.raises(DaemonUnavailable, match="cannot be reached"):
            asked(server.url, lambda client: client.retry("65537"))
        with pytest.raises(DaemonUnavailable, match="cannot be reached"):
            asked(server.url, lambda client: client.add("resize", "a", once=False))
        assert len(server.asked) == 2
        assert "idempotency-key" not in server.asked[1].headers


def test_what_was_refused_for_now_is_done_again_without_a_key_too(asked: Callable[..., Any]) -> None:
    with scripted(AWAY, IDS) as server:
        assert asked(server.url, lambda client: client.add("resize", "a", once=False)) == ["65537"]


def test_a_daemon_that_is_not_there_is_waited_for(asked: Callable[..., Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens there, nor can anybody
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(DaemonUnavailable, match="cannot be reached"):
            asked(url, lambda client: client.retry("65537"), 0.3)


def test_patience_ends(asked: Callable[..., Any]) -> None:
    with scripted(*[AWAY] * 50) as server:
        with pytest.raises(DaemonUnavailable, match="away"):
            asked(server.url, lambda client: client.job("65537"), 2.0)
        assert 1 < len(server.asked) < 20
    with scripted((429, {"error": "the quota is used up"}, {"retry-after": "30"})) as server:
        with pytest.raises(OverQuota, match="the quota is used up") as told:
            asked(server.url, lambda client: client.add("resize", "a"), 1.0)
        assert told.value.retry_after == 30


@pytest.mark.parametrize(
    ("status", "said", "error", "text"),
    [
        (400, {"error": "a sentence"}, Invalid, "a sentence"),
        (401, {"error": "no token"}, Unauthorized, "no token"),
        (404, {"error": "no job"}, NotFound, "no job"),
        (409, {"error": "moved on"}, Conflict, "moved on"),
        (409, {"error": "key", "id": "5"}, DuplicateKey, "id 5"),
        (413, {"error": "too large"}, Invalid, "too large"),
        (422, {"error": "another body"}, Invalid, "another body"),
        (500, {"error": "went wrong"}, DaemonUnavailable, "went wrong"),
        (404, b"<html>", NotFound, "status 404"),
        (302, b"", DaemonUnavailable, "status 302"),
        (200, b"<html>", DaemonUnavailable, "no hipq daemon"),
    ],
)
def test_what_is_refused_is_an_error_of_hipq(
    asked: Callable[..., Any], status: int, said: Any, error: type[HipqError], text: str
) -> None:
    with (
        scripted((status, said, {"location": "http://127.0.0.1:9/"})) as server,
        pytest.raises(error, match=text),
    ):
        asked(server.url, lambda client: client.job("65537"))


def test_a_result_is_waited_for_and_a_failure_raised(asked: Callable[..., Any]) -> None:
    pending: Scripted = (202, {"state": "running"}, {})
    done: Scripted = (200, b'{"a": 1}', {"X-Hipq-Code": "ok", "X-Hipq-Exitcode": "200"})
    with scripted(pending, done) as server:
        found = asked(server.url, lambda client: client.result("65537"))
        assert (found.json(), found.code, found.exitcode, found.text) == ({"a": 1}, "ok", 200, '{"a": 1}')
        assert "wait=20" in server.asked[0].line
    with (
        scripted((200, b"declined", {"X-Hipq-Code": "failed", "X-Hipq-Exitcode": "400"})) as server,
        pytest.raises(JobFailed, match="job 65537 ended with failed: declined"),
    ):
        asked(server.url, lambda client: client.result("65537"))
    with scripted(*[pending] * 10) as server, pytest.raises(TimeoutError, match="has not ended within 0 seconds"):
        asked(server.url, lambda client: client.result("65537", timeout=0))


def test_an_admins_client_needs_a_tenant() -> None:
    with (
        scripted((200, {"tenant": None, "roles": ["admin"]}, {})) as server,
        Client(server.url, "t") as client,
        pytest.raises(Invalid, match="say for which tenant"),
    ):
        client.add("resize", "a")


def test_what_cannot_be_sent_is_said_before_anything_is() -> None:
    for url in ("ftp://x", "127.0.0.1:8080", "", "http://"):
        with pytest.raises(Invalid, match="daemon's URL"):
            Client(url, "t")
    for token in ("a b", "a\nb", "é"):
        with pytest.raises(Invalid, match="no token"):
            Client("http://127.0.0.1:9", token)
    with Client("http://127.0.0.1:9", "t", tenant="acme", patience=0) as client:
        for payload in (object(), float("nan"), {1, 2}, "\ud800"):
            with pytest.raises(Invalid, match="no JSON"):
                client.add("resize", payload)


def test_events_end_with_the_daemon() -> None:
    text = b': hello\n\nevent: added\ndata: {"event":"added",\ndata: "id":"1"}\n\ndata: {"event":"ok"}\n\n'
    with (
        scripted((200, text, {"content-type": "text/event-stream"})) as server,
        Client(server.url, "t", tenant="a") as one,
    ):
        assert list(one.events()) == [{"event": "added", "id": "1"}, {"event": "ok"}]
    with (
        scripted((401, {"error": "no token"}, {})) as server,
        Client(server.url, "t", tenant="a") as one,
        pytest.raises(Unauthorized),
    ):
        list(one.events())


def test_it_needs_nothing_of_hipq_but_the_errors_and_says_what_is_missing() -> None:
    code = """
import sys
import hipq
before = set(sys.modules)
from hipq.client import Client
print(sorted(name for name in set(sys.modules) - before if name.startswith(("hipq", "httpx"))))
sys.modules["httpx2"] = None
try:
    Client("http://127.0.0.1:9", "t")
except hipq.Invalid as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.splitlines()
    assert all(name.startswith("hipq.client") for name in eval(found[0]))
    assert found[1] == "hipq.client needs httpx2: pip install 'hipq[client]'"
