"""Jobs over HTTP: whoever posts them, on one connection or on many; and Starlette applications that just read, or
append what they read to a file."""

from __future__ import annotations

import asyncio
import os
import time
from functools import cache
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PATIENCE: Final = 120.0


async def _read(request: Request) -> Response:
    await request.body()
    return Response(b'{"ids":["1"]}', media_type="application/json")


async def _append(request: Request) -> Response:
    os.write(_file(), await request.body())
    os.fdatasync(_file())
    return Response(b'{"ids":["1"]}', media_type="application/json")


@cache
def _file() -> int:
    return os.open(os.environ["BENCH_FILE"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)


bare = Starlette(routes=[Route("/{client}/job/{type}/add", _read, methods=["POST"])])
"""What the daemon is compared with: the same route, the same body, the same kind of reply, and nothing is written."""
synced = Starlette(routes=[Route("/{client}/job/{type}/add", _append, methods=["POST"])])
"""What can be had on this disk: the body is in a file, and that is synced, before the reply."""


class Posted(NamedTuple):
    seconds: float
    times: list[float]
    """Of each request, sorted."""

    def at(self, part: float) -> float:
        """The milliseconds within which this part of all was answered."""
        return self.times[min(int(len(self.times) * part), len(self.times) - 1)] * 1000


def post(port: int, token: str, body: bytes, connections: int, requests: int) -> Posted:
    """POST the same body so often, on so many connections, each one after the other."""
    head = (
        f"POST /acme/job/bench/add HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    message = head.encode() + body
    return _run(_post(port, message, connections, requests))


def _run(main: Any) -> Posted:
    import uvloop

    found: Posted = uvloop.run(asyncio.wait_for(main, PATIENCE))
    return found


async def _post(port: int, message: bytes, connections: int, requests: int) -> Posted:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    callers = [_Caller(message, requests // connections, connections, done) for _ in range(connections)]
    _Caller.left = connections
    for caller in callers:
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", port)  # type: ignore[misc]
    began = time.perf_counter()
    for caller in callers:
        caller.begin()
    await done
    seconds = time.perf_counter() - began
    return Posted(seconds, sorted(one for caller in callers for one in caller.times))


class _Caller(asyncio.Protocol):
    left = 0

    def __init__(self, message: bytes, count: int, connections: int, done: asyncio.Future[None]) -> None:
        self._message = message
        self._count = count
        self._connections = connections
        self._done = done
        self._buffer = b""
        self._sent = 0.0
        self.times: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def begin(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._message)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._whole():
            return
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            if not self._done.done():
                self._done.set_exception(RuntimeError(self._buffer[:300].decode()))
            return
        self._buffer = b""
        self.times.append(time.perf_counter() - self._sent)
        if len(self.times) < self._count:
            self.begin()
            return
        self._transport.close()
        _Caller.left -= 1
        if not _Caller.left and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if len(self.times) < self._count and not self._done.done():
            self._done.set_exception(RuntimeError(f"the connection was lost: {error}"))

    def _whole(self) -> bool:
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return False
        at = head.lower().index(b"content-length:")
        return len(body) >= int(head[at + 15 :].split(b"\r\n", 1)[0])
