"""A shop whose jobs wait for callbacks, on each store, and ways to call back: straight into the application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pytest

from hipq import Hipq, Queue, Wait
from hipq.callback.asgi import callbacks
from hipq.testing.clock import HandClock
from tests.engine.conftest import app, clock, make_app, queue, run, url

__all__ = ["app", "clock", "make_app", "queue", "run", "url"]

HOUR = 3600 * 1_000_000


class Told(NamedTuple):
    status: int
    headers: dict[str, str]
    json: Any


async def call(
    application: Any,
    token: str,
    body: bytes | Iterable[bytes] = b"",
    *,
    method: str = "POST",
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    query: str = "",
    path: str = "/hipq/",
    client: tuple[str, int] | None = ("192.0.2.1", 5),
) -> Told | None:
    """One request as a server hands it over; None if it was not replied to. A body of several parts is chunked."""
    parts = [body] if isinstance(body, bytes) else list(body)
    last = len(parts) - 1
    coming = [{"type": "http.request", "body": part, "more_body": n < last} for n, part in enumerate(parts)]
    sent: list[dict[str, Any]] = []

    async def receive() -> Mapping[str, Any]:
        return coming.pop(0) if coming else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    pairs = headers.items() if isinstance(headers, Mapping) else headers
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path + token, "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs], "client": client,
    }  # fmt: skip
    await application(scope, receive, send)
    if not sent:
        return None
    start, end = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    assert found["content-length"] == str(len(end["body"]))
    return Told(start["status"], found, json.loads(end["body"]))


Post = Callable[..., Told]


@pytest.fixture
def charge(queue: Queue) -> Any:
    """A job type whose jobs wait; the answer is looked at by code."""
    found = queue.job("charge", timeout=600)(lambda _: Wait())
    found.answered(lambda _, answer: {"paid": answer.data})
    return found


@pytest.fixture
def post(app: Hipq) -> Post:
    application = callbacks(app)

    def do(token: str, *arguments: Any, **options: Any) -> Told:
        told = asyncio.run(call(application, token, *arguments, **options))
        assert told is not None
        return told

    return do


@pytest.fixture
def sign(app: Hipq, clock: HandClock) -> Callable[..., str]:
    def do(job_id: int, after: int = HOUR) -> str:
        row = app.store.get(job_id)
        assert row
        return app.signer.sign(row, clock.now() + after)

    return do
