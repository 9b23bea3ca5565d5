"""The headers that a job's declared request goes out with, as people may see them. They are filled in anew from the
job, since none are stored: secrets would be in the database."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hipq.dashboard.masks import MASK, masked
from hipq.errors import Invalid
from hipq.job.model import Row
from hipq.requests.declared import Request
from hipq.transports.base import ATTEMPT_HEADER, CALLBACK_HEADER, JOB_HEADER, KEY_HEADER, quoted
from hipq.transports.webhooks import SIGNATURE

if TYPE_CHECKING:
    from hipq.queue import Queue

Headers = tuple[tuple[str, str], ...]
"""Names and values."""
_SECRET: Final = re.compile(
    r"auth|cookie|token|secret|signature|passw|credential|session|callback|api.?key|access.?key|\bkey\b|private|bearer|jwt",
    re.IGNORECASE,
)
"""In the names of headers whose values nobody sees."""
_OPEN: Final = (KEY_HEADER, "idempotency-key")
"""Headers that say `key` and hold none."""
_LONGEST: Final = 300


def sent_headers(queue: Queue, row: Row, mask: Collection[str]) -> Callable[[int], Headers]:
    """From an attempt to the headers of its request: none, if the request is not declared or its code is not here."""
    known = queue.known(row.job_type)
    request = known.fn if known else None
    if not isinstance(request, Request):
        return lambda _attempt: ()
    values = {"key": row.job_key, "id": str(row.id), "callback_url": MASK, "data": masked(_data(row), mask)}

    def headers(attempt: int) -> Headers:
        found = {KEY_HEADER: quoted(row.job_key), JOB_HEADER: str(row.id), ATTEMPT_HEADER: str(attempt or "?")}
        found |= {CALLBACK_HEADER: MASK} if request.called_back else {}
        found |= {name: _filled(request, name, values | {"attempt": attempt or "?"}) for name in request.header_names}
        found |= {SIGNATURE: MASK} if request.is_signed else {}
        return tuple((name, _shown(name, value, mask)) for name, value in found.items())

    return headers


def _filled(request: Request, name: str, values: dict[str, Any]) -> str:
    try:
        return request.shown_header(name, values)
    except Invalid as error:
        return f"nobody can tell: {error}"


def _shown(name: str, value: str, mask: Collection[str]) -> str:
    if name in mask or (name not in _OPEN and _SECRET.search(name)):
        return MASK
    text = str(masked(value, mask))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _data(row: Row) -> Any:
    try:
        return msgspec.json.decode(row.job_data)
    except (msgspec.DecodeError, RecursionError):
        return None
