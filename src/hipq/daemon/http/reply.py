"""What whoever calls is told: an HTTP status, a body, and for each thing that can go wrong one sentence as JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, NamedTuple

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from hipq import errors
from hipq.daemon.tenancy.quotas import TooMuchAtOnce

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

JSON: Final = b"application/json"
_ALWAYS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
CLOSE: Final = ((b"connection", b"close"),)
_BARE: Final = b"HTTP/1.1 200 OK\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


class Reply(NamedTuple):
    status: int
    body: bytes
    kind: bytes = JSON
    headers: Headers = ()
    bare: bool = False
    """Without any headers but those it needs: of the reply that is most of all, to a POST, which nobody keeps."""

    async def write(self, send: Send, *, head_only: bool = False) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self._all_headers()})
        await send({"type": "http.response.body", "body": b"" if head_only else self.body})

    def text(self, more: bytes) -> bytes:
        """As it is sent, with more lines in its head."""
        if self.bare and self.status == 200:
            return _BARE % (more, len(self.body), self.body)
        lines = b"".join([b"%b: %b\r\n" % header for header in self._all_headers()])
        return b"%b%b%b\r\n%b" % (STATUS_LINE[self.status], more, lines, self.body)

    def _all_headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", self.kind), (b"content-length", b"%d" % len(self.body))]
        return headers if self.bare else [*headers, *_ALWAYS, *self.headers]


def reply(value: Any, status: int = 200, headers: Headers = ()) -> Reply:
    return Reply(status, msgspec.json.encode(value), JSON, headers)


def added(ids: list[int], status: int = 200) -> Reply:
    """Ids are strings: a JavaScript number cannot hold one."""
    return Reply(status, b'{"ids":["%s"]}' % '","'.join(map(str, ids)).encode(), bare=True)


def sentence(status: int, text: str, headers: Headers = (), **more: Any) -> Reply:
    return reply({"error": text, **more}, status, headers)


def later(seconds: int) -> Headers:
    return ((b"retry-after", b"%d" % seconds),)


class HttpError(Exception):
    """A request that is not taken: the HTTP status, and why."""

    def __init__(self, status: int, text: str, headers: Headers = ()) -> None:
        super().__init__(text)
        self.status, self.headers = status, headers


class ClientGone(Exception):
    """Nobody is there any more to be told anything."""


NOTHING: Final = "there is nothing here"
"""For whatever does not exist, and for whatever is another tenant's: nobody can tell them apart."""


_REFUSALS: Final[tuple[tuple[type[Exception], int, str, int], ...]] = (
    (TooMuchAtOnce, 413, "", 0),
    (errors.Invalid, 400, "", 0),
    (errors.NotFound, 404, "there is no job with this id", 0),
    (errors.Conflict, 409, "", 0),
    (errors.StoreRefused, 400, "the database will not store this", 0),
    (errors.JournalBehind, 429, "", 1),
    (errors.JournalFull, 507, "", 5),
    (errors.JournalBroken, 503, "", 30),
    (errors.StoreDefect, 500, "something went wrong here, and is in the log; try again", 0),
    (errors.HipqError, 503, "the database cannot be reached right now; try again", 1),
    (Exception, 500, "something went wrong here, and is in the log; try again", 0),
)
"""For each error, the first that fits: its status, the sentence, if it is not the error's own, and the seconds after
which another try is worth it."""


def refusal(error: Exception) -> Reply:
    """Never more than a sentence: what went wrong here is in the log."""
    match error:
        case HttpError():
            return sentence(error.status, str(error), error.headers)
        case errors.OverQuota():
            return sentence(429, str(error), later(error.retry_after))
        case errors.DuplicateKey():
            return sentence(409, f"a live job of this type has this key already: {error.id}", id=str(error.id))
    _, status, text, seconds = next(one for one in _REFUSALS if isinstance(error, one[0]))
    return sentence(status, text or str(error), later(seconds) if seconds else ())
