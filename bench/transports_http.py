"""Callbacks: whoever brings answers by HTTP, on many connections at once; and a server that does nothing with them."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from bench.lines import Broken

CONNECTIONS: Final = 200
START_SECONDS: Final = 30.0
PATIENCE: Final = 120.0
OURS: Final = ("hipq", "callbacks", "bench.transports_program:app", "--rate", "0", "--log-level", "warning")
BARE: Final = ("uvicorn", "bench.transports_http:bare", "--log-level", "warning", "--no-access-log")

_REPLY: Final[list[dict[str, Any]]] = [
    {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]},
    {"type": "http.response.body", "body": b"{}"},
]


async def bare(
    scope: Mapping[str, Any],
    receive: Callable[[], Awaitable[Mapping[str, Any]]],
    send: Callable[[Mapping[str, Any]], Awaitable[None]],
) -> None:
    """An ASGI application that reads the body and says 200."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    for part in _REPLY:
        await send(part)


@contextmanager
def server(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[int]:
    """The port of a server that is started with this, until the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", *command, "--port", str(port)], env=dict(environment), stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise Broken(f"{' '.join(command)} does not listen")
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def post_all(port: int, requests: Sequence[tuple[str, bytes]]) -> float:
    """POST all of these paths and bodies, each connection one after the other; seconds until the last reply."""
    return asyncio.run(asyncio.wait_for(_posted(port, requests), PATIENCE))


async def _posted(port: int, requests: Sequence[tuple[str, bytes]]) -> float:
    waiting = deque(_request(path, body) for path, body in requests)
    loop = asyncio.get_running_loop()
    count, done = min(CONNECTIONS, len(waiting)), loop.create_future()
    callers = [Caller(waiting, count, done) for _ in range(count)]
    for caller in callers:
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", port)  # type: ignore[misc]
    began = time.perf_counter()
    Caller.busy = count
    for caller in callers:
        caller.next()
    await done
    return time.perf_counter() - began


def _request(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Caller(asyncio.Protocol):
    """One connection: the next request when the last was replied to with 200."""

    busy = 0

    def __init__(self, waiting: deque[bytes], count: int, done: asyncio.Future[None]) -> None:
        self._waiting, self._done = waiting, done
        self._came = b""
        Caller.busy = count

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def next(self) -> None:
        if self._waiting:
            self._transport.write(self._waiting.popleft())
            return
        self._transport.close()
        Caller.busy -= 1
        if not Caller.busy and not self._done.done():
            self._done.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, end, body = self._came.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return
        self._came = b""
        if head[9:12] == b"200":
            self.next()
        else:
            self._fail(f"{head.decode(errors='replace')[:40]} {body.decode(errors='replace')[:200]}")

    def connection_lost(self, error: Exception | None) -> None:
        if not self._transport.is_closing():
            self._fail(f"the server hung up ({error})")

    def _fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(Broken(why))


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
