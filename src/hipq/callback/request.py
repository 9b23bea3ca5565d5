"""A callback's request: its headers, and its body as an answer's data. Bad requests are refused in one sentence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from hipq.errors import Invalid
from hipq.job import payload

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]

BODY_SECONDS: Final = 30.0
"""Seconds a body may take to arrive."""
ANSWER_ID_HEADERS: Final = ("idempotency-key", "webhook-id", "hipq-answer-id")
ERROR_HEADER: Final = "hipq-error"

_WHAT: Final = "the answer"
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


class BadCallback(Exception):
    """An answer that is refused: the HTTP status, and why."""

    def __init__(self, status: int, sentence: str, word: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.word = word
        """The word in the reply where an accepted answer has its outcome."""


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

    def data(self, body: bytes) -> Any:
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


class Body:
    """The body of a request while it arrives; `size` bytes of it are in memory."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self.size = 0

    async def read(self, room: Callable[[int], None]) -> bytes:
        """Read the whole body. `room` is called with the size of every part, and may refuse it."""
        parts: list[bytes] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BODY_SECONDS):
                while await self._part(parts, room):
                    pass
                return b"".join(parts)
        raise BadCallback(408, f"the answer took longer than {BODY_SECONDS:g} seconds to come")

    async def _part(self, parts: list[bytes], room: Callable[[int], None]) -> bool:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        if self.size + len(part) > self._most:
            raise too_large(self._most)
        room(len(part))
        self.size += len(part)
        parts.append(part)
        return bool(message.get("more_body", False))


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
