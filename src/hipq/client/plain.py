"""`Client`: the daemon's client for synchronous programs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from hipq.client import wire
from hipq.client.asking import ClientRequest, Pause, Steps
from hipq.client.replies import Lost, Response, Result, good
from hipq.client.verbs import EventLines, Verbs
from hipq.errors import DaemonUnavailable

T = TypeVar("T")


class Client:
    """A client of a daemon. `token` belongs to a tenant; an admin's token needs `tenant`. A request that the daemon
    cannot take right now is retried for `patience` seconds. Thread-safe."""

    def __init__(self, url: str, token: str = "", *, tenant: str = "", patience: float = 30.0) -> None:
        self._httpx2 = wire.httpx2()
        self._http = self._httpx2.Client(**wire.options(url, token))
        self._verbs = Verbs(tenant, patience)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- jobs -------------------------------------------------------------------------------------------------------
    def add(self, type: str, *payloads: Any, **options: Any) -> list[str]:
        """Add a job for each payload: bytes and text as they are, anything else as JSON. Returns their ids, in
        order. Options are key, at, delay, priority, timeout, windows and then; and once=False, for which see
        `add_many`."""
        return self._do(self._verbs.add(type, payloads, options))

    def add_many(self, jobs: Iterable[Mapping[str, Any]], *, once: bool = True) -> list[str]:
        """Add jobs of any types; each is a mapping with type, payload, and the options of `add`. The daemon
        remembers the request, so that the jobs are added once even if its reply is lost and the request is repeated.
        once=False is faster, and works while the daemon's database is away; but then a lost reply is an error."""
        return self._do(self._verbs.add_many(jobs, once))

    def job(self, job_id: str | int) -> dict[str, Any]:
        return self._do(self._verbs.job(job_id))

    def jobs(self, **filters: Any) -> list[dict[str, Any]]:
        """Jobs by type, state, phase, code and key, after an id, up to a limit."""
        return self._do(self._verbs.jobs(filters))

    def result(self, job_id: str | int, timeout: float | None = None) -> Result:
        """The result of a job, when it has ended. JobFailed if it did not succeed; TimeoutError."""
        return self._do(self._verbs.result(job_id, timeout))

    def why(self, job_id: str | int) -> dict[str, Any]:
        return self._do(self._verbs.why(job_id))

    def cancel(self, job_id: str | int, reason: str = "") -> dict[str, Any]:
        return self._do(self._verbs.cancel(job_id, reason))

    def retry(self, job_id: str | int) -> dict[str, Any]:
        return self._do(self._verbs.retry(job_id))

    def answer(self, type: str, key: str, data: Any, **options: Any) -> str:
        """Deliver the answer to a job: matched, buffered, duplicate, conflict or late. Options are answer_id, error
        and attempt."""
        return self._do(self._verbs.answer(type, key, data, options))

    # -- handlers ---------------------------------------------------------------------------------------------------
    def set_handler(self, type: str, lang: str, body: str, **parts: str) -> dict[str, Any]:
        """Set the code that runs the jobs of a type. Further parts are eid, before, beforeEach and afterEach."""
        return self._do(self._verbs.set_handler(type, {"lang": lang, "body": body, **parts}))

    def get_handler(self, type: str) -> dict[str, Any]:
        return self._do(self._verbs.get_handler(type))

    def handlers(self) -> list[dict[str, Any]]:
        return self._do(self._verbs.handlers())

    def delete_handler(self, type: str) -> None:
        self._do(self._verbs.delete_handler(type))

    # -- looking ----------------------------------------------------------------------------------------------------
    def queues(self) -> list[dict[str, Any]]:
        return self._do(self._verbs.queues())

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of the tenant's jobs from now on, until the daemon stops."""
        request = self._do(self._verbs.events())
        lines = EventLines()
        try:
            with self._http.stream(
                request.method, request.path, headers=dict(request.headers), timeout=request.seconds
            ) as response:
                if response.status_code != 200:
                    good(wire.response(response.status_code, response.headers, response.read()))
                for line in response.iter_lines():
                    if event := lines.take(line):
                        yield event
        except self._httpx2.TransportError as error:
            raise DaemonUnavailable(f"the daemon's events have ended: {error}") from None

    # -- how --------------------------------------------------------------------------------------------------------
    def _do(self, steps: Steps[T]) -> T:
        came: Response | Lost | None = None
        try:
            while True:
                step = steps.send(came)
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    came = None
                else:
                    came = self._send(step)
        except StopIteration as end:
            value: T = end.value
            return value

    def _send(self, request: ClientRequest) -> Response | Lost:
        try:
            found = self._http.request(
                request.method, request.path, params=dict(request.query), headers=dict(request.headers),
                content=request.body or None,
                timeout=self._httpx2.Timeout(request.seconds, connect=wire.CONNECT_SECONDS),
            )  # fmt: skip
        except (self._httpx2.ConnectError, self._httpx2.ConnectTimeout) as error:
            return Lost(str(error), sent=False)
        except self._httpx2.TransportError as error:
            return Lost(str(error) or type(error).__name__, sent=True)
        return wire.response(found.status_code, found.headers, found.content)
