"""The reply to a callback: an HTTP status, and as JSON the outcome of the answer or the reason of a refusal."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from hipq.callback.batches import Overloaded
from hipq.callback.request import BadCallback
from hipq.callback.signing import Expired, Forbidden
from hipq.errors import HipqError, StoreRefused
from hipq.job.answer import Answered

Send = Callable[[dict[str, Any]], Awaitable[None]]

STATUS: Final = {
    Answered.MATCHED: 200,
    Answered.DUPLICATE: 200,
    Answered.BUFFERED: 202,
    Answered.CONFLICT: 409,
    Answered.LATE: 410,
}
AGAIN: Final = ((b"retry-after", b"1"),)


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


def refusal(error: Exception) -> CallbackReply:
    """The reply to a failure: one sentence and no more, because the details are in the log."""
    match error:
        case BadCallback(status=408):
            return CallbackReply(
                408, {"error": str(error)}, ((b"connection", b"close"),)
            )  # the rest of the connection's data is that unread body
        case BadCallback():
            word = {"answer": error.word} if error.word else {}
            return CallbackReply(error.status, {**word, "error": str(error)})
        case Forbidden():
            return CallbackReply(403, {"error": str(error)})
        case Expired():
            return CallbackReply(410, {"answer": "expired", "error": str(error)})
        case Overloaded():
            return CallbackReply(429, {"error": "too many answers wait already; try again"}, AGAIN)
        case StoreRefused():
            return CallbackReply(400, {"error": "the database will not store this answer"})
        case HipqError():
            return CallbackReply(503, {"error": "the database cannot be reached right now; try again"}, AGAIN)
        case _:
            return CallbackReply(500, {"error": "something went wrong here, and is in the log; try again"}, AGAIN)
