"""A callback as HTTP: its headers, its body as an answer's data, and the reply. Bad requests are refused in one
sentence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from hipq.answers.reading import event_id
from hipq.callback.signing import Expired, Forbidden
from hipq.errors import HipqError, Invalid, StoreRefused
from hipq.job import payload
from hipq.job.answer import Answered
from hipq.transports.cloud_events import event_in
from hipq.transports.webhooks import BadSignature

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

BODY_SECONDS: Final = 30.0
"""Seconds a body may take to arrive."""
ANSWER_ID_HEADERS: Final = ("idempotency-key", "webhook-id", "hipq-answer-id")
ERROR_HEADER: Final = "hipq-error"

_WHAT: Final = "the answer"
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}
STATUS: Final = {
    Answered.MATCHED: 200,
    Answered.DUPLICATE: 200,
    Answered.BUFFERED: 202,
    Answered.CONFLICT: 409,
    Answered.LATE: 410,
}
AGAIN: Final = ((b"retry-after", b"1"),)


class BadCallback(Exception):
    """An answer that is refused: the HTTP status, and why."""

    def __init__(self, status: int, sentence: str, word: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.word = word
        """The word in the reply where an accepted answer has its outcome."""


class Overloaded(Exception):
    """Too many callbacks are waiting already."""


class ClientGone(Exception):
    """The client hung up, so nobody reads the reply."""


class CallbackRequest:
    """A POST, as far as it is known before its body."""

    def __init__(self, scope: Scope) -> None:
        self.headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        lengths = {value for name, value in scope["headers"] if name.lower() == b"content-length"}
        if len(lengths) > 1:
            raise BadCallback(400, "there are two Content-Lengths, and they differ")
        self.length = _length(self.headers.get("content-length", ""))
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise BadCallback(415, "send the answer as it is, without a Content-Encoding")
        self.kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self.kind.startswith("multipart/"):
            raise BadCallback(
                415, "send the answer as JSON, as a form of Content-Type x-www-form-urlencoded, or as text"
            )
        self.answer_id = next((self.headers[name] for name in ANSWER_ID_HEADERS if self.headers.get(name)), None)
        self.error = self._says_error(scope["query_string"])

    def _says_error(self, query: bytes) -> bool:
        asked = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
        said = self.headers.get(ERROR_HEADER, asked.get("error", "false")).strip().lower()
        if said not in _TRUTH:
            raise BadCallback(400, f"{ERROR_HEADER}, or error in the URL's query, must be true or false")
        return _TRUTH[said]

    def answer(self, body: bytes | bytearray) -> tuple[Any, str | None]:
        """The data in a body, and the answer's id, if it has one. A CloudEvent has both in it."""
        event = event_in(self.headers, bytes(body), is_quoted=True)
        if event is None:
            return self.data(body), self.answer_id
        return event["data"], self.answer_id or event_id(event)

    def data(self, body: bytes | bytearray) -> Any:
        """The data in a body: JSON if it can be read as such, whatever its content type, because many clients send
        none or a wrong one. A form is a mapping of text, any other text is text."""
        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise BadCallback(400, f"{_WHAT} is not UTF-8 text") from None
        if not text.strip():
            return None
        is_form = self.kind == "application/x-www-form-urlencoded"
        try:
            return payload.parse(text, _WHAT)
        except Invalid:
            if self.kind == "application/json" or self.kind.endswith("+json"):
                raise
            if is_form and text.lstrip()[:1] in ("{", "["):
                raise  # JSON from a client that calls everything a form
        return _form(text) if is_form else text


async def read_body(receive: Receive, body: bytearray, most: int, hold: Callable[[int], None]) -> None:
    """Read the whole body. `hold` is called with the size of every part before that is added, and may refuse it."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part = message.get("body", b"")
                if len(body) + len(part) > most:
                    raise too_large(most)
                hold(len(part))
                body += part
                more = message.get("more_body", False)
    except TimeoutError:
        raise BadCallback(408, f"the answer took longer than {BODY_SECONDS:g} seconds to come") from None


def too_large(most: int) -> BadCallback:
    return BadCallback(413, f"an answer may have {most:,} bytes, and this one has more")


def _length(text: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        raise BadCallback(400, "the Content-Length is not a number")
    return int(text[:20])  # longer numbers are too large as well


def _form(text: str) -> dict[str, str | list[str]] | str:
    """The fields of a form; a field that occurs several times has all its values. Text that is no form stays text,
    because some clients call everything a form."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        return text
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


# -- replies -----------------------------------------------------------------------------------------------------------
class CallbackReply(NamedTuple):
    status: int
    body: dict[str, str]
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def write(self, send: Send) -> None:
        body = json.dumps(self.body).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def accepted(outcome: Answered) -> CallbackReply:
    return CallbackReply(STATUS[outcome], {"answer": outcome})


def webhook_accepted(outcome: Answered) -> CallbackReply:
    """To a webhook all that is kept is 2xx, also what is late: 410 would tell its sender to send no more, ever."""
    is_later = outcome in (Answered.BUFFERED, Answered.UNREADABLE)
    return CallbackReply(202 if is_later else 200, {"answer": outcome})


def refusal(error: Exception) -> CallbackReply:
    """The reply to a failure: one sentence and no more, because the details are in the log."""
    match error:
        case BadCallback(status=408):
            # the rest of the connection's data is that unread body
            return CallbackReply(408, {"error": str(error)}, ((b"connection", b"close"),))
        case BadCallback():
            word = {"answer": error.word} if error.word else {}
            return CallbackReply(error.status, {**word, "error": str(error)})
        case BadSignature():
            return CallbackReply(401, {"error": str(error)})
        case Forbidden():
            return CallbackReply(403, {"error": str(error)})
        case Expired():
            return CallbackReply(410, {"answer": "expired", "error": str(error)})
        case Overloaded():
            return CallbackReply(429, {"error": "too many answers wait already; try again"}, AGAIN)
        case StoreRefused():
            return CallbackReply(400, {"error": "the database will not store this answer"})
        case Invalid():
            return CallbackReply(503, {"error": "signatures cannot be checked here right now; try again"}, AGAIN)
        case HipqError():
            return CallbackReply(503, {"error": "the database cannot be reached right now; try again"}, AGAIN)
        case _:
            return CallbackReply(500, {"error": "something went wrong here, and is in the log; try again"}, AGAIN)
