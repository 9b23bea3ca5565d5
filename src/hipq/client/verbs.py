"""The requests of a daemon's client, each as the steps it takes."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from hipq.client.asking import ClientRequest, Steps, retried, text_of
from hipq.client.replies import Result, good, result
from hipq.errors import Invalid

POLL: Final = 20.0
"""Seconds that one request waits for a result."""
_JSON: Final = {"content-type": "application/json"}

Seen = dict[str, Any]
"""An object as the daemon shows it."""


class Verbs:
    """The requests that both clients share."""

    def __init__(self, tenant: str, patience: float) -> None:
        self.tenant = tenant
        self._patience = patience

    # -- asking -----------------------------------------------------------------------------------------------------
    def _ask(self, request: ClientRequest) -> Steps[Seen]:
        found: Seen = good((yield from retried(request, self._patience))).json()
        return found

    def _path(self, *parts: str) -> Steps[str]:
        """The path of a resource of this tenant; the daemon says which tenant the token belongs to."""
        if not self.tenant:
            found = yield from self._ask(ClientRequest("GET", "/v1/whoami", repeatable=True))
            if not found["tenant"]:
                raise Invalid("this is an admin's token: say for which tenant, Client(url, token, tenant=...)")
            self.tenant = found["tenant"]
        return "/".join(["", "v1", self.tenant, *(quote(part, safe="") for part in parts)])

    def _get(self, *parts: str, **query: Any) -> Steps[Seen]:
        path = yield from self._path(*parts)
        return (yield from self._ask(ClientRequest("GET", path, _query(query), repeatable=True)))

    # -- jobs -------------------------------------------------------------------------------------------------------
    def add(self, type: str, payloads: tuple[Any, ...], options: Mapping[str, Any]) -> Steps[list[str]]:
        given = dict(options)
        once = bool(given.pop("once", True))
        jobs = [{"type": type, "payload": payload, **given} for payload in payloads or (b"",)]
        return (yield from self.add_many(jobs, once))

    def add_many(self, jobs: Iterable[Mapping[str, Any]], once: bool) -> Steps[list[str]]:
        body = json.dumps([_job(job) for job in jobs]).encode()
        path = yield from self._path("jobs")
        headers = {**_JSON, "idempotency-key": uuid4().hex} if once else _JSON
        found = yield from self._ask(ClientRequest("POST", path, headers=headers, body=body, repeatable=once))
        return list(found["ids"])

    def job(self, job_id: str | int) -> Steps[Seen]:
        return (yield from self._get("jobs", str(job_id)))

    def jobs(self, filters: Mapping[str, Any]) -> Steps[list[dict[str, Any]]]:
        return list((yield from self._get("jobs", **filters))["jobs"])

    def why(self, job_id: str | int) -> Steps[Seen]:
        return (yield from self._get("jobs", str(job_id), "why"))

    def cancel(self, job_id: str | int, reason: str) -> Steps[Seen]:
        path = yield from self._path("jobs", str(job_id), "cancel")
        return (yield from self._ask(ClientRequest("POST", path, _query({"reason": reason}))))

    def retry(self, job_id: str | int) -> Steps[Seen]:
        path = yield from self._path("jobs", str(job_id), "retry")
        return (yield from self._ask(ClientRequest("POST", path)))

    def result(self, job_id: str | int, timeout: float | None) -> Steps[Result]:
        path = yield from self._path("jobs", str(job_id), "result")
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = POLL if until is None else max(0.0, min(POLL, until - time.monotonic()))
            request = ClientRequest("GET", path, {"wait": f"{left:.3f}"}, repeatable=True, seconds=left + 30)
            found = result(str(job_id), (yield from retried(request, self._patience)))
            if found is not None:
                return found
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"job {job_id} has not ended within {timeout:g} seconds")

    def answer(self, type: str, key: str, data: Any, options: Mapping[str, Any]) -> Steps[str]:
        path = yield from self._path("answers", type, key)
        given = dict(options)
        headers = {"idempotency-key": given.pop("answer_id", "") or uuid4().hex}
        if not isinstance(data, (bytes, str)):
            headers |= _JSON
        request = ClientRequest("POST", path, _query(given), headers, text_of(data), repeatable=True)
        response = yield from retried(request, self._patience)
        if response.status in (409, 410) and b'"answer"' in response.body:
            return str(response.json()["answer"])
        return str(good(response).json()["answer"])

    # -- handlers ---------------------------------------------------------------------------------------------------
    def set_handler(self, type: str, parts: Mapping[str, str]) -> Steps[Seen]:
        path = yield from self._path("handlers", type)
        body = json.dumps({name: value for name, value in parts.items() if value}).encode()
        return (yield from self._ask(ClientRequest("PUT", path, headers=_JSON, body=body, repeatable=True)))

    def get_handler(self, type: str) -> Steps[Seen]:
        return (yield from self._get("handlers", type))

    def handlers(self) -> Steps[list[dict[str, Any]]]:
        return list((yield from self._get("handlers"))["handlers"])

    def delete_handler(self, type: str) -> Steps[None]:
        path = yield from self._path("handlers", type)
        yield from self._ask(ClientRequest("DELETE", path))

    # -- looking ----------------------------------------------------------------------------------------------------
    def queues(self) -> Steps[list[dict[str, Any]]]:
        return list((yield from self._get("queues"))["queues"])

    def events(self) -> Steps[ClientRequest]:
        return ClientRequest("GET", (yield from self._path("events")), headers={"accept": "text/event-stream"})


def _query(given: Mapping[str, Any]) -> dict[str, str]:
    """The query without arguments that were not given."""
    found = {name: value for name, value in given.items() if value not in (None, "", 0, False)}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()}


def _job(given: Mapping[str, Any]) -> dict[str, Any]:
    """A job as JSON."""
    found = {name: value for name, value in given.items() if value not in (None, "") and name != "payload"}
    if isinstance(found.get("at"), datetime):
        if found["at"].tzinfo is None:
            raise Invalid("at has no time zone; add one")
        found["at"] = found["at"].isoformat()
    payload = given.get("payload", b"")
    text = text_of(payload)
    try:
        return {**found, "payload": text.decode()} if text else found
    except UnicodeDecodeError:
        return {**found, "payload_base64": b64encode(text).decode()}


class EventLines:
    """Parses server-sent events, line by line."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def take(self, line: str) -> dict[str, Any] | None:
        """Add a line; returns the event that this line ends, if any."""
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
        if line or not self._data:
            return None
        text, self._data = "\n".join(self._data), []
        found: dict[str, Any] = json.loads(text)
        return found
