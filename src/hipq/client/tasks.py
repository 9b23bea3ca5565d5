"""`AsyncClient`: the daemon's client for asyncio; the same methods, to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, TypeVar

from hipq.client import wire
from hipq.client.asking import ClientRequest, Pause, Steps
from hipq.client.replies import Lost, Response, Result, good
from hipq.client.verbs import EventLines, Verbs
from hipq.errors import DaemonUnavailable

T = TypeVar("T")


class AsyncClient:
    """A client of a daemon. `token` belongs to a tenant; an admin's token needs `tenant`. A request that the daemon
    cannot take right now is retried for `patience` seconds."""

    def __init__(self, url: str, token: str = "", *, tenant: str = "", patience: float = 30.0) -> None:
        self._httpx2 = wire.httpx2()
        self._http = self._httpx2.AsyncClient(**wire.options(url, token))
        self._verbs = Verbs(tenant, patience)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- jobs -------------------------------------------------------------------------------------------------------
    async def add(self, type: str, *payloads: Any, **options: Any) -> list[str]:
        """Add a job for each payload: bytes and text as they are, anything else as JSON. Returns their ids, in
        order. Options are key, at, delay, priority, timeout, windows and then; and once=False, for which see
        `add_many`."""
        return await self._do(self._verbs.add(type, payloads, options))

    async def add_many(self, jobs: Iterable[Mapping[str, Any]], *, once: bool = True) -> list[str]:
        """Add jobs of any types; each is a mapping with type, payload, and the options of `add`. The daemon
        remembers the request, so that the jobs are added once even if its reply is lost and the request is repeated.
        once=False is faster, and works while the daemon's database is away; but then a lost reply is an error."""
        return await self._do(self._verbs.add_many(jobs, once))

    async def job(self, job_id: str | int) -> dict[str, Any]:
        return await self._do(self._verbs.job(job_id))

    async def jobs(self, **filters: Any) -> list[dict[str, Any]]:
        """Jobs by type, state, phase, code and key, after an id, up to a limit."""
        return await self._do(self._verbs.jobs(filters))

    async def result(self, job_id: str | int, timeout: float | None = None) -> Result:
        """The result of a job, when it has ended. JobFailed if it did not succeed; TimeoutError."""
        return await self._do(self._verbs.result(job_id, timeout))

    async def why(self, job_id: str | int) -> dict[str, Any]:
        return await self._do(self._verbs.why(job_id))

    async def cancel(self, job_id: str | int, reason: str = "") -> dict[str, Any]:
        return await self._do(self._verbs.cancel(job_id, reason))

    async def retry(self, job_id: str | int) -> dict[str, Any]:
        return await self._do(self._verbs.retry(job_id))

    async def answer(self, type: str, key: str, data: Any, **options: Any) -> str:
        """Deliver the answer to a job: matched, buffered, duplicate, conflict or late. Options are answer_id, error
        and attempt."""
        return await self._do(self._verbs.answer(type, key, data, options))

    # -- handlers ---------------------------------------------------------------------------------------------------
    async def set_handler(self, type: str, lang: str, body: str, **parts: str) -> dict[str, Any]:
        """Set the code that runs the jobs of a type. Further parts are eid, before, beforeEach and afterEach."""
        return await self._do(self._verbs.set_handler(type, {"lang": lang, "body": body, **parts}))

    async def get_handler(self, type: str) -> dict[str, Any]:
        return await self._do(self._verbs.get_handler(type))

    async def handlers(self) -> list[dict[str, Any]]:
        return await self._do(self._verbs.handlers())

    async def delete_handler(self, type: str) -> None:
        await self._do(self._verbs.delete_handler(type))

    # -- looking ----------------------------------------------------------------------------------------------------
    async def queues(self) -> list[dict[str, Any]]:
        return await self._do(self._verbs.queues())

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The events of the tenant's jobs from now on, until the daemon stops."""
        request = await self._do(self._verbs.events())
        lines = EventLines()
        try:
            async with self._http.stream(
                request.method, request.path, headers=dict(request.headers), timeout=request.seconds
            ) as response:
                if response.status_code != 200:
                    good(wire.response(response.status_code, response.headers, await response.aread()))
                async for line in response.aiter_lines():
                    if event := lines.take(line):
                        yield event
        except self._httpx2.TransportError as error:
            raise DaemonUnavailable(f"the daemon's events have ended: {error}") from None

    # -- how --------------------------------------------------------------------------------------------------------
    async def _do(self, steps: Steps[T]) -> T:
        came: Response | Lost | None = None
        try:
            while True:
                step = steps.send(came)
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    came = None
                else:
                    came = await self._send(step)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _send(self, request: ClientRequest) -> Response | Lost:
        try:
            found = await self._http.request(
                request.method, request.path, params=dict(request.query), headers=dict(request.headers),
                content=request.body or None,
                timeout=self._httpx2.Timeout(request.seconds, connect=wire.CONNECT_SECONDS),
            )  # fmt: skip
        except (self._httpx2.ConnectError, self._httpx2.ConnectTimeout) as error:
            return Lost(str(error), sent=False)
        except self._httpx2.TransportError as error:
            return Lost(str(error) or type(error).__name__, sent=True)
        return wire.response(found.status_code, found.headers, found.content)
