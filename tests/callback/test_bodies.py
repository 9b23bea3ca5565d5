"""What an answer's body may be, and what is refused before it is read, while it is, and after."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hipq import Hipq
from hipq.callback import asgi, http
from hipq.callback.asgi import callbacks
from tests.callback.conftest import Post, call

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
TAKEN: list[tuple[str, bytes, Any]] = [
    ("", b"", None),
    (JSON, b"", None),
    (JSON, b" \n", None),
    (JSON, b'{"a": [1, 2.5, null, "\xc3\xa9"]}', {"a": [1, 2.5, None, "é"]}),
    ("application/json; charset=utf-8", b"true", True),
    ("application/vnd.bank+json", b"[]", []),
    (JSON, b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
    ("", b'{"a": 1}', {"a": 1}),
    ("text/plain", b"5", 5),
    (FORM, b'{"paid": true}', {"paid": True}),
    (FORM, b"status=paid&amount=5&note=", {"status": "paid", "amount": "5", "note": ""}),
    (f"{FORM}; charset=utf-8", b"name=J%C3%B6rg+M&tag=a&tag=b", {"name": "Jörg M", "tag": ["a", "b"]}),
    (FORM, b"done", "done"),
    (FORM, b"a=%ff", "a=%ff"),
    ("text/plain", "bezahlt für 5 €".encode(), "bezahlt für 5 €"),
    ("text/plain", b"[INFO] done", "[INFO] done"),
    ("application/xml", b"<paid/>", "<paid/>"),
]
REFUSED = [
    (JSON, b"{", 400, "is not JSON"),
    (JSON, b'{"a": 1, "a": 2}', 400, "same key twice"),
    (JSON, b'{"a": NaN}', 400, "nan"),
    (JSON, b'"a\\u0000b"', 400, "NUL"),
    (JSON, b"123456789012345678901234567890", 400, "64 bits"),
    (JSON, b"9" * 5000, 400, "64 bits"),
    (JSON, b"[" * 150 + b"]" * 150, 400, "deeper than 100"),
    (JSON, b"[" * 100_000, 400, "deeper than 100"),
    (JSON, b'"\\ud800"', 400, "surrogate"),
    (JSON, b"\xff", 400, "UTF-8"),
    (FORM, b"{not json", 400, "is not JSON"),
    (FORM, b"a=%00", 400, "NUL"),
    ("text/plain", b"a\x00b", 400, "NUL"),
    ("", b"\x89PNG\r\n", 400, "UTF-8"),
    ("multipart/form-data; boundary=x", b"--x--", 415, "as a form"),
]


@pytest.fixture
def token(app: Hipq, charge: Any, sign: Callable[..., str]) -> str:  # noqa: ARG001
    return sign(charge.enqueue())


@pytest.mark.parametrize(("kind", "body", "data"), TAKEN)
def test_what_is_read_from_a_body(app: Hipq, post: Post, token: str, kind: str, body: bytes, data: Any) -> None:
    told = post(token, body, headers={"content-type": kind} if kind else {})
    assert told.status == 202, told
    (kept,) = app.answers.list()
    assert kept.data == data
    assert type(kept.data) is type(data)


@pytest.mark.parametrize(("kind", "body", "status", "sentence"), REFUSED)
def test_what_cannot_be_kept_is_refused_in_a_sentence(
    app: Hipq, post: Post, token: str, kind: str, body: bytes, status: int, sentence: str
) -> None:
    told = post(token, body, headers={"content-type": kind} if kind else {})
    assert told.status == status
    assert sentence in told.json["error"]
    assert len(told.json["error"]) < 200
    assert app.answers.list() == []


def test_an_encoded_body_is_not_decoded(post: Post, token: str) -> None:
    assert post(token, gzip.compress(b"1"), headers={"content-encoding": "gzip"}).status == 415
    assert post(token, b"1", headers={"content-encoding": "identity"}).status == 202


def test_lengths_are_looked_at(post: Post, token: str) -> None:
    assert post(token, b"1", headers=[("content-length", "1"), ("content-length", "2")]).status == 400
    assert post(token, b"1", headers={"content-length": "-1"}).status == 400
    assert post(token, b"1", headers={"content-length": "9" * 5000}).status == 413


# -- size and time ---------------------------------------------------------------------------------------------------
def small(app: Hipq) -> Any:
    return callbacks(app, size=100)


def told(application: Any, token: str, *arguments: Any, **options: Any) -> int:
    found = asyncio.run(call(application, token, *arguments, **options))
    assert found
    return found.status


def test_a_body_of_the_size_is_taken_and_one_more_byte_is_not(app: Hipq, token: str) -> None:
    exact = b'"' + b"x" * 98 + b'"'
    for body in (exact, [exact[:50], exact[50:]], [exact, b""]):
        assert told(small(app), token, body, headers={"content-type": JSON}) == 202
    for more in (exact + b" ", [exact, b" "], [b"x"] * 101):
        assert told(small(app), token, more) == 413


def test_what_says_it_is_too_large_is_not_read(app: Hipq, token: str) -> None:
    async def never() -> Mapping[str, Any]:
        raise AssertionError("it was read")

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": f"/{token}", "query_string": b"", "client": None,
             "headers": [(b"content-length", b"101")]}  # fmt: skip
    asyncio.run(small(app)(scope, never, send))
    assert sent[0]["status"] == 413


def test_a_body_that_does_not_come_is_not_waited_for_long(
    app: Hipq, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.05)
    sent: list[dict[str, Any]] = []

    async def drips() -> Mapping[str, Any]:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": f"/{token}", "query_string": b"", "headers": []}
    asyncio.run(callbacks(app)(scope, drips, send))
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


def test_who_goes_before_the_end_of_the_body_has_brought_nothing(app: Hipq, token: str) -> None:
    application = callbacks(app)

    async def half() -> Any:
        messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": b'"half', "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Mapping[str, Any]:
            return messages.pop(0)

        async def send(_: Any) -> None:
            raise AssertionError("nobody is there")

        scope = {"type": "http", "method": "POST", "path": f"/{token}", "query_string": b"", "headers": []}
        await application(scope, receive, send)

    asyncio.run(half())
    assert app.answers.list() == []
    assert application._held == 0


def test_memory_for_bodies_is_bounded(app: Hipq, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "HELD", 250)
    application = callbacks(app, size=100)

    async def many() -> list[int]:
        found = await asyncio.gather(*(call(application, token, b'"' + b"x" * 98 + b'"') for _ in range(5)))
        return sorted(one.status for one in found if one)

    assert asyncio.run(many()) == [202, 202, 429, 429, 429]
    assert application._held == 0
    assert asyncio.run(many())[0] == 202


def test_a_server_that_starts_and_stops_is_told_that_all_is_well(app: Hipq) -> None:
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[str] = []

    async def receive() -> Mapping[str, Any]:
        return messages.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])

    asyncio.run(callbacks(app)({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    asyncio.run(callbacks(app)({"type": "websocket"}, receive, send))
    assert sent[-1] == "websocket.close"


def test_settings_are_checked(app: Hipq) -> None:
    wrong: list[dict[str, Any]] = [{"size": 0}, {"size": 1 << 30}, {"rate": -1}, {"rate": "many"}]
    for options in wrong:
        with pytest.raises(ValueError, match="must be"):
            callbacks(app, **options)
