"""`Client` and `AsyncClient`: how each carries out the steps of a request, with httpx2."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from hipq.client.operating import Operating
from hipq.client.replies import Lost, Response, good
from hipq.client.steps import ClientRequest, Pause, Steps
from hipq.client.verbs import EventLines
from hipq.errors import DaemonUnavailable, Invalid

CONNECT_SECONDS: Final = 10.0

T = TypeVar("T")


class _Base(Operating):
    _kind: str
    """The class of httpx2 that sends the requests."""

    def __init__(self, url: str, token: str = "", *, tenant: str = "", patience: float = 30.0) -> None:
        super().__init__(tenant, patience)
        try:
            import httpx2  # only when a client is made
        except ModuleNotFoundError:
            raise Invalid("hipq.client needs httpx2: pip install 'hipq[client]'") from None
        self._httpx2: Any = httpx2
        self._http = getattr(httpx2, self._kind)(**_options(url, token))

    def _arguments(self, request: ClientRequest) -> dict[str, Any]:
        return {
            "method": request.method, "url": request.path, "params": dict(request.query),
            "headers": dict(request.headers), "content": request.body or None,
            "timeout": self._httpx2.Timeout(request.seconds, connect=CONNECT_SECONDS),
        }  # fmt: skip

    def _lost(self, error: Exception) -> Lost:
        never_sent = isinstance(error, (self._httpx2.ConnectError, self._httpx2.ConnectTimeout))
        return Lost(str(error) or type(error).__name__, sent=not never_sent)


class Client(_Base):
    """A client of a daemon. `token` belongs to a tenant; an operator's needs `tenant`. A request that the daemon
    cannot take right now is retried for `patience` seconds. Thread-safe."""

    _kind = "Client"

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of the tenant's jobs from now on, until the daemon stops."""
        return self._followed("events")

    def output(self, job_id: str | int) -> Iterator[dict[str, Any]]:
        """What the handler of a job prints, while it prints it, until the job has ended: events with a `text`."""
        return self._followed("jobs", job_id, "output")

    def _followed(self, *parts: str | int) -> Iterator[dict[str, Any]]:
        request = self._do(self._stream(*parts))
        lines = EventLines()
        try:
            with self._http.stream(**self._arguments(request)) as response:
                if response.status_code != 200:
                    response.read()
                    good(_response(response))
                for line in response.iter_lines():
                    if event := lines.take(line):
                        yield event
        except self._httpx2.TransportError as error:
            raise DaemonUnavailable(f"the daemon's events have ended: {error}") from None

    def _do(self, steps: Steps[T]) -> T:
        came: Response | Lost | None = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration as end:
                value: T = end.value
                return value
            came = None
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                continue
            try:
                came = _response(self._http.request(**self._arguments(step)))
            except self._httpx2.TransportError as error:
                came = self._lost(error)


class AsyncClient(_Base):
    """A client of a daemon, for asyncio. `token` belongs to a tenant; an operator's needs `tenant`. A request that
    the daemon cannot take right now is retried for `patience` seconds."""

    _kind = "AsyncClient"

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def events(self) -> AsyncIterator[dict[str, Any]]:
        """The events of the tenant's jobs from now on, until the daemon stops."""
        return self._followed("events")

    def output(self, job_id: str | int) -> AsyncIterator[dict[str, Any]]:
        """What the handler of a job prints, while it prints it, until the job has ended: events with a `text`."""
        return self._followed("jobs", job_id, "output")

    async def _followed(self, *parts: str | int) -> AsyncIterator[dict[str, Any]]:
        request = await self._do(self._stream(*parts))
        lines = EventLines()
        try:
            async with self._http.stream(**self._arguments(request)) as response:
                if response.status_code != 200:
                    await response.aread()
                    good(_response(response))
                async for line in response.aiter_lines():
                    if event := lines.take(line):
                        yield event
        except self._httpx2.TransportError as error:
            raise DaemonUnavailable(f"the daemon's events have ended: {error}") from None

    async def _do(self, steps: Steps[T]) -> T:
        came: Response | Lost | None = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration as end:
                value: T = end.value
                return value
            came = None
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                continue
            try:
                came = _response(await self._http.request(**self._arguments(step)))
            except self._httpx2.TransportError as error:
                came = self._lost(error)


def _options(url: str, token: str) -> dict[str, Any]:
    """The arguments of httpx2's client. Redirects are not followed, because the token would go along."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(f"a daemon's URL is like http://127.0.0.1:8080, not {url!r:.80}")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise Invalid("this is no token: hipq token create makes one")
    headers = {"user-agent": "hipq", **({"authorization": f"Bearer {token}"} if token else {})}
    return {"base_url": url.rstrip("/"), "headers": headers, "follow_redirects": False}


def _response(found: Any) -> Response:
    return Response(found.status_code, {name.lower(): value for name, value in found.headers.items()}, found.content)
