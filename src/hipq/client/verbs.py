"""What can be asked of a daemon: each verb once, as the steps it takes, for both clients."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from hipq.client.replies import Result, good, result
from hipq.client.steps import ClientRequest, Steps, retried, verb
from hipq.errors import Invalid

POLL: Final = 20.0
"""Seconds that one request waits for a result."""
JSON: Final = {"content-type": "application/json"}
_TEST_SECONDS: Final = 300.0
"""Seconds that the reply to a handler's test may take: its minute, and until it starts."""

Seen = dict[str, Any]
"""An object as the daemon shows it."""


class Verbs:
    """The verbs that both clients share."""

    def __init__(self, tenant: str, patience: float) -> None:
        self._tenant = tenant
        self._patience = patience

    # -- jobs -------------------------------------------------------------------------------------------------------
    @verb
    def add(self, type: str, *payloads: Any, **options: Any) -> Steps[list[str]]:
        """Add a job for each payload: bytes and text as they are, anything else as JSON. Returns their ids, in
        order. Options are key, at, delay, priority, timeout, windows and then; and once=False, for which see
        `add_many`."""
        once = bool(options.pop("once", True))
        return (yield from self._add([{"type": type, "payload": one, **options} for one in payloads or (b"",)], once))

    @verb
    def add_many(self, jobs: Iterable[Mapping[str, Any]], *, once: bool = True) -> Steps[list[str]]:
        """Add jobs of any types; each is a mapping with type, payload, and the options of `add`. The daemon
        remembers the request, so that the jobs are added once even if its reply is lost and the request is repeated.
        once=False is faster, and works while the daemon's database is away; but then a lost reply is an error."""
        return (yield from self._add(jobs, once))

    @verb
    def job(self, job_id: str | int) -> Steps[Seen]:
        return (yield from self._get("jobs", job_id))

    @verb
    def jobs(self, /, **filters: Any) -> Steps[list[Seen]]:
        """Jobs by type, state, phase, code and key, after an id, up to a limit."""
        return list((yield from self._get("jobs", **filters))["jobs"])

    @verb
    def result(self, job_id: str | int, timeout: float | None = None) -> Steps[Result]:
        """The result of a job, when it has ended. JobFailed if it did not succeed; TimeoutError."""
        path = yield from self._path("jobs", job_id, "result")
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = POLL if until is None else max(0.0, min(POLL, until - time.monotonic()))
            request = ClientRequest("GET", path, {"wait": f"{left:.3f}"}, repeatable=True, seconds=left + 30)
            found = result(str(job_id), (yield from retried(request, self._patience)))
            if found is not None:
                return found
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"job {job_id} has not ended within {timeout:g} seconds")

    @verb
    def children(self, job_id: str | int, /, **page: Any) -> Steps[list[Seen]]:
        """The jobs that the handler of this one has added, after an id, up to a limit."""
        return list((yield from self._get("jobs", job_id, "children", **page))["jobs"])

    @verb
    def why(self, job_id: str | int) -> Steps[Seen]:
        return (yield from self._get("jobs", job_id, "why"))

    @verb
    def cancel(self, job_id: str | int, reason: str = "") -> Steps[Seen]:
        path = yield from self._path("jobs", job_id, "cancel")
        return (yield from self._ask(ClientRequest("POST", path, as_query({"reason": reason}))))

    @verb
    def retry(self, job_id: str | int) -> Steps[Seen]:
        return (yield from self._ask(ClientRequest("POST", (yield from self._path("jobs", job_id, "retry")))))

    @verb
    def answer(self, /, type: str, key: str, data: Any, **options: Any) -> Steps[str]:
        """Deliver the answer to a job: matched, buffered, duplicate, conflict or late. Options are answer_id, error
        and attempt."""
        path = yield from self._path("answers", type, key)
        headers = {"idempotency-key": options.pop("answer_id", "") or uuid4().hex}
        if not isinstance(data, (bytes, str)):
            headers |= JSON
        request = ClientRequest("POST", path, as_query(options), headers, _text(data), repeatable=True)
        response = yield from retried(request, self._patience)
        if response.status in (409, 410) and b'"answer"' in response.body:
            return str(response.json()["answer"])
        return str(good(response).json()["answer"])

    # -- handlers ---------------------------------------------------------------------------------------------------
    @verb
    def set_handler(self, /, type: str, lang: str, body: str, **parts: Any) -> Steps[Seen]:
        """Set the code that runs the jobs of a type. Further parts are eid, before, beforeEach, afterEach, waits and
        policy, a mapping that says how it runs."""
        path = yield from self._path("handlers", type)
        given = {name: value for name, value in {"lang": lang, "body": body, **parts}.items() if value}
        request = ClientRequest("PUT", path, headers=JSON, body=json.dumps(given).encode(), repeatable=True)
        return (yield from self._ask(request))

    @verb
    def get_handler(self, type: str) -> Steps[Seen]:
        return (yield from self._get("handlers", type))

    @verb
    def handlers(self) -> Steps[list[Seen]]:
        return list((yield from self._get("handlers"))["handlers"])

    @verb
    def delete_handler(self, type: str) -> Steps[None]:
        yield from self._ask(ClientRequest("DELETE", (yield from self._path("handlers", type))))

    @verb
    def handler_versions(self, type: str) -> Steps[list[Seen]]:
        """The versions that are kept, newest first, also of a handler that was deleted."""
        return list((yield from self._get("handlers", type, "versions"))["versions"])

    @verb
    def restore_handler(self, type: str, version: str) -> Steps[Seen]:
        """Let a version that is kept run again."""
        path = yield from self._path("handlers", type, "versions", version)
        return (yield from self._ask(ClientRequest("POST", path, repeatable=True)))

    @verb
    def test_handler(self, /, type: str, payload: Any = b"", **parts: Any) -> Steps[Seen]:
        """Run a handler once, which is not put, and nothing of which is kept; without parts (lang, body, ...) the one
        that runs now. Returns how that ended: status, data, error, log, jobs."""
        path = yield from self._path("handlers", type, "test")
        given: dict[str, Any] = {"payload_base64": b64encode(_text(payload)).decode()}
        if parts:
            given["handler"] = {name: value for name, value in parts.items() if value}
        request = ClientRequest("POST", path, headers=JSON, body=json.dumps(given).encode(), seconds=_TEST_SECONDS)
        return (yield from self._ask(request))

    # -- secrets, and keys that sign ----------------------------------------------------------------------------------
    @verb
    def set_secret(self, name: str, value: str | bytes) -> Steps[Seen]:
        """Set what handlers that name it have as an environment variable. It is not to be had again."""
        body = value.encode() if isinstance(value, str) else value
        path = yield from self._path("secrets", name)
        headers = {"content-type": "text/plain"}
        return (yield from self._ask(ClientRequest("PUT", path, headers=headers, body=body, repeatable=True)))

    @verb
    def secrets(self) -> Steps[list[Seen]]:
        """Their names, and when each was set."""
        return list((yield from self._get("secrets"))["secrets"])

    @verb
    def delete_secret(self, name: str) -> Steps[None]:
        yield from self._ask(ClientRequest("DELETE", (yield from self._path("secrets", name))))

    @verb
    def signing_keys(self) -> Steps[list[Seen]]:
        """The keys that the calls of http handlers are signed with: their ids."""
        return list((yield from self._get("signing-keys"))["keys"])

    @verb
    def new_signing_key(self) -> Steps[Seen]:
        """A key that signs from now on, beside the one before. Its `secret` is not to be had again."""
        return (yield from self._ask(ClientRequest("POST", (yield from self._path("signing-keys")))))

    @verb
    def drop_signing_key(self, key_id: str) -> Steps[None]:
        yield from self._ask(ClientRequest("DELETE", (yield from self._path("signing-keys", key_id))))

    # -- queues -------------------------------------------------------------------------------------------------------
    @verb
    def queues(self) -> Steps[list[Seen]]:
        return list((yield from self._get("queues"))["queues"])

    # -- asking -----------------------------------------------------------------------------------------------------
    def _add(self, jobs: Iterable[Mapping[str, Any]], once: bool) -> Steps[list[str]]:
        body = json.dumps([_job(job) for job in jobs]).encode()
        path = yield from self._path("jobs")
        headers = {**JSON, "idempotency-key": uuid4().hex} if once else JSON
        found = yield from self._ask(ClientRequest("POST", path, headers=headers, body=body, repeatable=once))
        return list(found["ids"])

    def _stream(self, *parts: str | int) -> Steps[ClientRequest]:
        return ClientRequest("GET", (yield from self._path(*parts)), headers={"accept": "text/event-stream"})

    def _get(self, *parts: str | int, **query: Any) -> Steps[Seen]:
        path = yield from self._path(*parts)
        return (yield from self._ask(ClientRequest("GET", path, as_query(query), repeatable=True)))

    def _ask(self, request: ClientRequest) -> Steps[Seen]:
        found: Seen = good((yield from retried(request, self._patience))).json()
        return found

    def _path(self, *parts: str | int) -> Steps[str]:
        """The path of a resource of this tenant; the daemon says which tenant the token belongs to."""
        if not self._tenant:
            found = yield from self._ask(ClientRequest("GET", "/v1/whoami", repeatable=True))
            if not found["tenant"]:
                raise Invalid(
                    "an operator's token: say for which tenant: Client(url, token, tenant=...), or --tenant NAME"
                )
            self._tenant = found["tenant"]
        return "/".join(["", "v1", self._tenant, *(quote(str(part), safe="") for part in parts)])


def as_query(given: Mapping[str, Any]) -> dict[str, str]:
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
    text = _text(given.get("payload", b""))
    try:
        return {**found, "payload": text.decode()} if text else found
    except UnicodeDecodeError:
        return {**found, "payload_base64": b64encode(text).decode()}


def _text(value: Any) -> bytes:
    """A payload as the daemon gets it: bytes and text as they are, anything else as JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        return (value if isinstance(value, str) else json.dumps(value, allow_nan=False, separators=(",", ":"))).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"this payload is no JSON: {error}") from None


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
