"""Bodies within their bounds: of size, of time, and of what all of them may hold in memory together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hipq.daemon.http.reply import ClientGone, HttpError
from hipq.daemon.http.request import Body, Limits, Shared, check_head, queried

Receive = Callable[[], Awaitable[dict[str, Any]]]


def coming(*parts: bytes | None) -> Receive:
    """A body in these parts; None = it is not heard of any more."""
    left = list(parts)

    async def receive() -> dict[str, Any]:
        part = left.pop(0)
        if part is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return receive


def shared(most: int = 1000) -> Shared:
    return Shared(most, 4, "too many bodies are in memory")


async def is_good() -> None:
    """Whoever sends it is let in still."""


def test_a_body_in_parts_is_put_together() -> None:
    held = shared()
    body = Body(coming(b"ab", b"", b"c"), Limits(), held, "acme", is_good)
    assert asyncio.run(body.read()) == b"abc"
    assert held.now == 3
    body.close()
    assert held.now == 0


def test_a_body_that_stops_coming_is_408_and_the_connection_ends() -> None:
    body = Body(coming(b"ab", None), Limits(body_seconds=0.05), shared(), "acme", is_good)
    with pytest.raises(HttpError, match=r"longer than 0\.05 seconds") as told:
        asyncio.run(body.read())
    assert told.value.status == 408
    assert (b"connection", b"close") in told.value.headers


def test_a_body_that_is_too_large_is_413() -> None:
    with pytest.raises(HttpError) as told:
        asyncio.run(Body(coming(b"x" * 6, b"x" * 5), Limits(body=10), shared(), "acme", is_good).read())
    assert told.value.status == 413
    for length in (b"11", b"9" * 20, b"x", b"-1", b"1_0"):
        with pytest.raises(HttpError) as told:
            check_head({b"content-length": length}, Limits(body=10))
        assert told.value.status == 413
    check_head({b"content-length": b"10"}, Limits(body=10))


def test_a_client_that_is_gone_is_noticed() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        asyncio.run(Body(receive, Limits(), shared(), "acme", is_good).read())


def test_one_tenant_has_a_quarter_of_what_is_for_all() -> None:
    held = shared(1000)
    held.take("acme", 250)
    with pytest.raises(HttpError, match="too many bodies are in memory already") as told:
        held.take("acme", 1)
    assert told.value.status == 503
    for other in ("bob", "carl", "dora"):
        held.take(other, 250)
    with pytest.raises(HttpError):
        held.take("emil", 1)
    held.give("bob", 250)
    held.take("emil", 250)
    held.give("acme", 250)
    assert held.now == 750


def test_a_query_says_each_thing_once() -> None:
    assert queried(b"a=1&b=%C3%A9+x&c&&") == {"a": "1", "b": "é x", "c": ""}
    for text in (b"a=1&a=2", b"a=%ff", b"%ff=a"):
        with pytest.raises(HttpError) as told:
            queried(text)
        assert told.value.status == 400
