"""The meaning of an HTTP reply for its job."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from hipq.errors import Invalid, shown
from hipq.job import payload
from hipq.job.json_path import reach, steps
from hipq.job.outcome import Failed, Ok, Retry, ServiceError, Wait
from hipq.transports.base import Reply

ReplyKey = str | Callable[[Reply], str]
"""Where the reply names the key of its later answer: a path into its JSON, or a function."""

LONGEST_PAUSE: Final = 86_400.0
SHORTEST_PAUSE: Final = 1.0
"""Seconds until a retry at least. A `Retry` with a time does not count as a failure: without a pause the job would
run as fast as the service refuses it."""
SHOWN: Final = 200
"""Characters of a reply that an error shows."""

_TOO_EARLY: Final = (408, 425, 429)
_CHARSET: Final = re.compile(r"charset\s*=\s*\"?(iso-8859-1|latin-?1|windows-1252)\b", re.IGNORECASE)


def outcome(
    reply: Reply, *, waits: bool, reply_key: ReplyKey | None = None, now: float | None = None
) -> Ok | Failed | Retry | Wait:
    """The job's outcome. ServiceError if the reply is an error. `waits`: the answer arrives by another way.

    `now`: seconds since 1970, for a service that names the time of the next try.
    """
    status = reply.status
    pause = retry_after(reply.headers, time.time() if now is None else now)
    if 200 <= status < 300:
        if not waits and status != 202:
            return Ok(_result(reply), exitcode=status)
        try:
            return Wait(key=_key(reply, reply_key))
        except Exception as error:  # the request was sent: sending it again would be once too often
            return Failed(f"the reply does not say which key the answer will have: {error}")
    if 300 <= status < 400:
        return Failed(f"{_title(status)}: {_pointed(reply)}")
    if status in _TOO_EARLY:
        return Retry(None if pause is None else max(pause, SHORTEST_PAUSE), reason=_message(reply))
    if 400 <= status < 500:
        return Failed(_message(reply), exitcode=status)
    raise ServiceError(_message(reply), exitcode=status if 500 <= status <= 599 else 500, retry_after=pause)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds until the next try that a service asks for (RFC 9110, 10.2.3: a number, or a date); None if it
    does not, or asks for no sensible time."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), LONGEST_PAUSE)
    try:
        date = parsedate_to_datetime(value)
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None
    return min(seconds, LONGEST_PAUSE) if seconds >= 0 else None


def _key(reply: Reply, where: ReplyKey | None) -> str | None:
    if where is None:
        return None
    found = where(reply) if callable(where) else reach(_json(reply), steps(where), "the reply")
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    if not isinstance(found, str) or not found:
        raise Invalid(f"the key of the answer must be text or a whole number; the reply has {shown(found)}")
    return found


def _json(reply: Reply) -> Any:
    return payload.parse(_text(reply), "the reply")


def _result(reply: Reply) -> Any:
    """The reply's JSON; if there is none, or none that can be stored, its text."""
    if not reply.body:
        return None
    try:
        return _json(reply)
    except Invalid:
        return _text(reply).replace("\x00", "\ufffd")


def _text(reply: Reply) -> str:
    named = _CHARSET.search(reply.headers.get("content-type", ""))
    # only a few encodings: some that Python knows take minutes for a megabyte
    return reply.body.decode(named[1] if named else "utf-8-sig", errors="replace")


def _message(reply: Reply) -> str:
    text = "".join(char if char.isprintable() else " " for char in _text(reply)[: SHOWN * 5])
    text = " ".join(text.split())
    start = text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
    return f"{_title(reply.status)}: {start}" if start else _title(reply.status)


def _title(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} (no status that HTTP knows)" if not 200 <= status < 600 else str(status)


def _pointed(reply: Reply) -> str:
    """The server that a redirect points to: the rest of the URL may be secret."""
    where = reply.headers.get("location", "")
    try:
        host = urlsplit(where).hostname
    except ValueError:
        host = "something that is no URL"
    if host:
        clean = "".join(char if char.isprintable() else "?" for char in host[:100])
        return f"redirects are not followed; it points to {clean}"
    return "redirects are not followed; it points to the same server" if where else "it is not what was asked for"
