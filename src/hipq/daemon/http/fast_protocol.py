"""HTTP for what most requests are: a small `add` is handed over, and replied to, right here.

uvicorn makes a scope, a cycle, an event and a task for each request, and Starlette looks for its route. A request that
can be taken at once needs none of that; all others go that way. And a head that differs from the one before in nothing
but the length of its body says what that one said: it is not parsed again. Together that doubles the posts a second on
many connections (docs/daemon-bench.md).
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from hipq.daemon.http.protocol import BoundedProtocol

if TYPE_CHECKING:
    from hipq.daemon.http.add import Adding, Head
    from hipq.daemon.http.reply import Reply

BODY_SECONDS: Final = 1.0
"""A body that is not here by then goes the usual way, which bounds how long it may take."""

_HEAD: Final = re.compile(
    rb"(POST [^\r\n]+\r\n(?:[^\r\n]+\r\n)*?content-length: *)[0-9]{1,8}(\r\n(?:[^\r\n]+\r\n)*\r\n)", re.IGNORECASE
)
"""No line in it is empty but the last, and none ends otherwise: so it ends where the parser says it does."""


class Taken:
    """Stands where uvicorn has the cycle of a request, for one that is taken at once: what is looked at there."""

    message_event: ClassVar = asyncio.Event()
    """Nobody waits for it."""

    def __init__(self) -> None:
        self.response_started = self.response_complete = True
        self.more_body = False
        self.disconnected = False
        self.keep_alive = True

    def begin(self, *, more_body: bool) -> None:
        """Another request, whose reply is to come."""
        self.response_started = self.response_complete = False
        self.more_body = more_body

    def end(self) -> None:
        self.response_started = self.response_complete = True


class Before(NamedTuple):
    """The last head on this connection."""

    start: bytes
    """All before the length of the body."""
    end: bytes
    """All behind the length of the body."""
    head: Head


class AtOnceProtocol(BoundedProtocol):
    """To be given to uvicorn as `http`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._adding: Adding = self.app.adding
        self._taken = Taken()
        self._head: Head | None = None
        """The head of a request whose body is still to come."""
        self._body: list[bytes] = []
        """What has come of that body."""
        self._patience: asyncio.TimerHandle | None = None
        """How long the rest of that body is waited for."""
        self._is_between = True
        """The parser is behind one request, and before the next."""
        self._data = b""
        """What came last, if a head begins with it."""
        self._before: Before | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._lines = b""
        """The headers that uvicorn adds to each reply, as they are sent."""

    def data_received(self, data: bytes) -> None:
        if self._before is not None and self._is_between and self._is_free() and self._is_as_before(data, self._before):
            self._stop_clock()
            self._unset_keepalive_if_required()
            return
        self._data = data if self._is_between else b""
        super().data_received(data)
        if self._head is not None and self._patience is None:
            self._patience = self.loop.call_later(BODY_SECONDS, self._go_the_usual_way)

    def _is_free(self) -> bool:
        """No reply is still to come, and the client reads those it gets."""
        return (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused

    def _is_as_before(self, data: bytes, before: Before) -> bool:
        """Whether this is one whole request, with that head, and is taken."""
        if self._refused or not data.startswith(before.start):
            return False
        start = len(before.start)
        end = data.find(b"\r", start, start + 9)
        length = data[start:end]
        if not length.isdigit() or not data.startswith(before.end, end):
            return False
        body = data[end + len(before.end) :]
        return len(body) == int(length) and self._is_taken(before.head, body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _refuse(self, status: int, text: str) -> None:
        self._stop_waiting()
        super()._refuse(status, text)

    # -- the parser tells -------------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_between = False

    def begin(self) -> None:
        data, self._data = self._data, b""  # what else is in it has another head
        parser = self.parser
        if (
            self._is_free()
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
        ):
            self._head = self._adding.head(self.url, self.headers)
        if self._head is None:
            super().begin()
            return
        found = _HEAD.match(data)
        self._before = Before(found[1], found[2], self._head) if found else None
        self._taken.begin(more_body=True)
        self.cycle = self._taken  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        if self._head is None:
            super().on_body(body)
        else:
            self._has_come()
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._is_between = True
        head = self._head
        if head is not None and not self._refused:
            if self._is_taken(head, b"".join(self._body)):
                self._stop_waiting()
                return
            self._go_the_usual_way()
        super().on_message_complete()

    def _go_the_usual_way(self) -> None:
        body = self._body
        self._stop_waiting()
        self._taken.end()  # else it is queued behind itself
        super().begin()
        self.cycle.keep_alive = self.cycle.keep_alive and self._taken.keep_alive  # the server may be stopping
        for part in body:
            super().on_body(part)

    def _stop_waiting(self) -> None:
        self._head, self._body = None, []
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # -- replying ---------------------------------------------------------------------------------------------------
    def _is_taken(self, head: Head, body: bytes) -> bool:
        if not self._adding.take(head, body, self._reply):
            return False
        self._taken.begin(more_body=False)
        self.cycle = self._taken  # type: ignore[assignment]
        return True

    def _reply(self, reply: Reply) -> None:
        taken = self._taken
        taken.end()
        if taken.disconnected or self.transport.is_closing():
            return
        headers = self.server_state.default_headers
        if headers is not self._headers:  # once a second: there is a date in them
            self._headers, self._lines = headers, b"".join([b"%b: %b\r\n" % header for header in headers])
        if taken.keep_alive and not self.open_now.leaving:
            self.transport.write(reply.text(self._lines))
        else:
            self.transport.write(reply.text(self._lines + b"connection: close\r\n"))
            self.transport.close()
        self.on_response_complete()
