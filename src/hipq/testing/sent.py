"""What an application under test sends: recorded instead of sent, and answered by the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hipq.app import Hipq
from hipq.errors import Invalid
from hipq.executors.execution import Execution
from hipq.job import payload
from hipq.job.answer import Answered
from hipq.job.view import Job
from hipq.transports.base import JOB_HEADER, Outgoing, Reply, key_in


@dataclass(frozen=True)
class Sent:
    """A request or a message that a job sent, or would have sent."""

    to: str
    """The URL."""
    body: bytes
    headers: Mapping[str, str]
    """By their names in lower case."""
    key: str
    """The key of the message, which is that of its job unless the sender said otherwise."""
    job: int | None
    """The id of the job whose handler sent it; None if none did."""
    method: str
    """Of a request by HTTP, like "POST"; "" for a message on a stream."""
    at: datetime
    _answer: Callable[..., Answered] = field(repr=False, compare=False)

    @property
    def data(self) -> Any:
        """The body, read as JSON; None if there is none."""
        return payload.parse(self.body, "the message") if self.body else None

    def answer(self, data: Any = None, *, error: bool = False, answer_id: str | None = None) -> Answered:
        """Bring an answer to the job that sent this, now; what became of it. `error`: the answer says that the work
        failed. `answer_id`: a second answer with the same id is a duplicate."""
        return self._answer(data, error=error, answer_id=answer_id)


class Sender(NamedTuple):
    """The handler that runs at this moment."""

    app: Hipq
    execution: Execution


class _Response(NamedTuple):
    to: str
    says: Callable[[Sent], Any]
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})


_NO_RESPONSE: Final = _Response("", lambda _sent: None)


class Outbox:
    """Takes what is sent while a harness is open, and gives HTTP requests their replies."""

    def __init__(self, now: Callable[[], datetime], find: Callable[[int], tuple[Hipq, Job[Any]]], real: bool) -> None:
        self.sent: list[Sent] = []
        self.real = real
        self.sender: Sender | None = None
        self._now = now
        self._find = find
        self._responses: list[_Response] = []
        self._process = os.getpid()

    @property
    def busy(self) -> bool:
        return self.sender is not None

    def respond(self, to: str, reply: Any, status: int, headers: Mapping[str, str]) -> None:
        says = reply if callable(reply) else lambda _sent: reply
        self._responses.insert(0, _Response(to, says, status, headers))

    def record(self, method: str, url: str, message: Outgoing) -> Reply | None:
        if os.getpid() != self._process:
            raise RuntimeError(
                "a child process of a test sends nothing, and the test could not see it: use the harness"
            )
        headers = {name.lower(): value for name, value in message.headers.items()}
        sending = self.sender.execution.row if self.sender else None
        named = headers.get(JOB_HEADER, "")
        job = int(named) if named.isdecimal() else sending.id if sending else None
        key = message.key or key_in(headers) or (sending.job_key if sending else "")
        sent = Sent(url, message.body, headers, key, job, method, self._now(), partial(self._bring, self.sender, job))
        self.sent.append(sent)
        return self._reply(sent)

    def _bring(self, sender: Sender | None, job: int | None, data: Any, **options: Any) -> Answered:
        """An answer to a job: if it sent this itself, to the attempt in which it did."""
        if job is None:
            raise Invalid("no job sent this, so there is none to answer: send with job=, or use JobType.answer")
        if sender and sender.execution.row.id == job:
            app, found, attempt = sender.app, sender.app.job(job), sender.execution.row.attempt
        else:
            (app, found), attempt = self._find(job), None
        return app.answer(app.declared.of_job(job).name, found.type, found.key, data, attempt=attempt, **options)

    def _reply(self, sent: Sent) -> Reply | None:
        response = next((one for one in self._responses if sent.to.startswith(one.to)), _NO_RESPONSE)
        reply = response.says(sent)
        if isinstance(reply, BaseException):
            raise reply
        if not sent.method:
            return None
        if not isinstance(reply, bytes):
            reply = b"" if reply is None else payload.encode(reply, "the reply").encode()
        return Reply(response.status, reply, response.headers)
