"""Requests to a daemon as steps without I/O, which both clients carry out.

A step is a request, with a reply or none, or a pause.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from hipq.client.replies import Lost, Response
from hipq.errors import DaemonUnavailable

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0

T = TypeVar("T")


class ClientRequest(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    repeatable: bool = False
    """Whether it does no harm if the request arrives twice."""
    seconds: float = 30.0
    """Seconds the reply may take."""


class Pause(NamedTuple):
    seconds: float


Step = ClientRequest | Pause
Steps = Generator[Step, "Response | Lost | None", T]


def retried(request: ClientRequest, patience: float) -> Steps[Response]:
    """The reply to a request. A request that the daemon does not accept right now, or never got, is sent again for
    `patience` seconds; one that it may have carried out, only if that does no harm."""
    until = time.monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        came = yield request
        assert came is not None
        wanted = pause * random.uniform(0.5, 1.0)  # clients that were refused together should not come back together
        if isinstance(came, Response):
            if not _later(came):
                return came
            wanted = max(wanted, came.retry_after or 0.0)
        if time.monotonic() + wanted > until or (isinstance(came, Lost) and came.sent and not request.repeatable):
            if isinstance(came, Response):
                return came
            raise DaemonUnavailable(f"the daemon cannot be reached: {came.why}")
        yield Pause(wanted)
        pause = min(pause * 2, LONGEST_PAUSE)


def _later(response: Response) -> bool:
    """Whether the daemon asks to try later. A conflict does if it says when."""
    return response.status in (429, 502, 503, 504, 507) or (response.status == 409 and response.retry_after is not None)


def text_of(value: Any) -> bytes:
    """A payload as the daemon gets it: bytes and text as they are, anything else as JSON."""
    import json

    from hipq.errors import Invalid

    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        return (value if isinstance(value, str) else json.dumps(value, allow_nan=False, separators=(",", ":"))).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"this payload is no JSON: {error}") from None
