"""Messages to a context. A shell cannot read JSON: it gets words, and its sources where its payloads arrive."""

from __future__ import annotations

import msgspec

from hipq.sandbox.handler import ContextJob, Handler

Message = tuple[bytes, bytes]
"""A line for the private channel, and bytes for standard input."""


def load(lang: str, number: int, handler: Handler) -> Message:
    sources = (handler.before, handler.beforeEach, handler.body, handler.afterEach)
    if lang == "shell":
        encoded = [source.encode() for source in sources]
        return _words("load", number, *map(len, encoded)), b"".join(encoded)
    message = {"do": "load", "handler": number, "type": handler.type}
    message |= dict(zip(("before", "beforeEach", "body", "afterEach"), sources, strict=True))
    return msgspec.json.encode(message) + b"\n", b""


def job(lang: str, number: int, handler: Handler, task: ContextJob) -> Message:
    payload = task.payload + b"\n"
    if lang == "shell":
        return _words("job", number, handler.type, task.attempt, len(task.payload), task.id), payload
    message = {"do": "job", "handler": number, "id": task.id, "attempt": task.attempt, "size": len(task.payload)}
    return msgspec.json.encode(message) + b"\n", payload


def part(lang: str, what: str, number: int) -> Message:
    """A message about a handler: `what` is begin, end or forget."""
    if lang == "shell":
        return _words(what, number), b""
    return msgspec.json.encode({"do": what, "handler": number}) + b"\n", b""


def _words(*words: object) -> bytes:
    """A line of words; the last may be anything but a line end."""
    return "\t".join(str(word) for word in words).replace("\n", " ").encode("utf-8", "replace") + b"\n"
