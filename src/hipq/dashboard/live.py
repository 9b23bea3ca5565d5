"""`/live?page=...`: what changes on a page, as server-sent events.

    a viewer comes -> its page is rendered, once for all viewers of it -> what has changed is sent -> rest -> again

A page that nobody looks at is not rendered. Nothing is queued for a viewer: one that reads slowly gets the latest when
it is ready for it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs

import msgspec

from hipq.dashboard.elements import compared, live_elements
from hipq.dashboard.visit import Refused, Role, Visit, Visitor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hipq.dashboard.site import Site

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PERIOD: Final = 1.0
"""Seconds between two renderings of a page, at least."""
REST: Final = 20
"""A page rests this many times as long as its rendering took: all viewers together cost a twentieth of a thread."""
RENDERINGS: Final = 2
"""Renderings at a time: the host application's threads are not used for them."""
STREAMS: Final = 1000
SHARE: Final = 4
"""One visitor may have a quarter of the streams."""
BEAT: Final = 15.0
"""Seconds of silence after which a comment is sent: else a proxy gives the connection up."""
WRITE_SECONDS: Final = 30.0
"""How long one write may take: a viewer that reads nothing for so long is gone."""
LONGEST: Final = 4000
"""Characters of the address of a page."""
LOOK_SECONDS: Final = 15.0
"""How long somebody may go on to look who may not any more."""
LEAVING_SECONDS: Final = 0.5
HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
)
_log = logging.getLogger("hipq")


class Rendering(NamedTuple):
    status: int
    elements: dict[str, str]
    """HTML by id."""
    seconds: float


class LivePage:
    """A page that somebody looks at: what was rendered last, and when each of its elements has changed."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.viewers = 0
        self.number = 0
        """Of the last change; 0 = it was not rendered yet."""
        self.news = asyncio.Event()
        """Set by the next change, and then replaced."""
        self.rendering: asyncio.Task[None] | None = None
        self._first = 0
        """The number of its first rendering: whoever has seen an older one gets everything."""
        self._status = 0
        self._elements: dict[str, str] = {}
        self._compared: dict[str, str] = {}
        self._changed: dict[str, int] = {}

    def take(self, found: Rendering, numbers: Iterator[int]) -> None:
        """A page that cannot be rendered keeps its elements: they are better than none."""
        elements = found.elements if found.status == 200 else self._elements
        now = {name: compared(html) for name, html in elements.items()}
        changed = {name for name, text in now.items() if self._compared.get(name) != text}
        if not changed and found.status == self._status:
            return
        self.number = next(numbers)
        self._first = self._first or self.number
        self._status, self._elements, self._compared = found.status, elements, now
        self._changed = {name: self.number if name in changed else self._changed[name] for name in now}
        self.news.set()
        self.news = asyncio.Event()

    def since(self, seen: int) -> dict[str, Any]:
        """What somebody lacks who has seen the change of this number."""
        least = seen if seen >= self._first else 0
        elements = {name: html for name, html in self._elements.items() if self._changed[name] > least}
        return {"status": self._status, "elements": elements}


class Live:
    """The streams of a dashboard."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._pages: dict[tuple[Role, str, str], LivePage] = {}
        self._threads = ThreadPoolExecutor(RENDERINGS, "hipq-live")
        self._numbers = count(1)
        self._run = token_hex(4)
        """Numbers are those of this process: another one's mean nothing here."""
        self._streams: set[asyncio.Task[None]] = set()
        self._by_visitor: Counter[str] = Counter()
        self._watching: asyncio.Task[None] | None = None
        self._is_stopping = False

    def stop(self) -> None:
        """End all streams, now: a server that stops waits for them."""
        self._is_stopping = True
        for stream in self._streams:
            stream.cancel()

    async def stream(self, visit: Visit, receive: Receive, send: Send, again: Callable[[], Awaitable[Visitor]]) -> None:
        """Tell a viewer what changes until it leaves; Refused before anything is sent. `again` says who it is now."""
        asked = visit.asked("page", "/")
        with self._room(visit.visitor.name), self._watched(self._allowed(visit, asked), asked) as page:
            told = visit.headers.get("last-event-id") or visit.asked("since")
            stream = asyncio.ensure_future(self._tell(page, self._seen(told), send))
            others = [asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(_revoked(visit.visitor, again))]
            self._streams.add(stream)
            self._watch_server()
            try:
                await asyncio.wait([stream, *others], return_when=asyncio.FIRST_COMPLETED)
                is_gone = others[0].done()
            finally:
                self._streams.discard(stream)
                for task in (stream, *others):
                    task.cancel()
                await asyncio.gather(stream, *others, return_exceptions=True)
            error = None if stream.cancelled() else stream.exception()
            if error is not None and not isinstance(error, (TimeoutError, OSError)):
                raise error
            if error is None and not is_gone:
                await send({"type": "http.response.body", "body": b""})

    # -- who may look, and at what ----------------------------------------------------------------------------------
    def _allowed(self, visit: Visit, asked: str) -> Visit:
        """The page as everybody of the visitor's role sees it: no name, no token in its forms."""
        if len(asked) > LONGEST:
            raise Refused(400, f"the address of a page may have {LONGEST} characters")
        path, _, query = asked.partition("?")
        route, _ = self._site.find("GET", path)
        if visit.visitor.role < max(route.role, Role.VIEW):
            raise Refused(403, f"this takes the role {max(route.role, Role.VIEW).name.lower()}")
        return Visit(
            method="GET", path=path, base=visit.base, query=parse_qs(query, keep_blank_values=True), form={},
            headers={"x-fragment": "1"}, visitor=Visitor("", visit.visitor.role),
        )  # fmt: skip

    @contextmanager
    def _room(self, visitor: str) -> Iterator[None]:
        if self._is_stopping:
            raise Refused(503, "this server is about to stop")
        if self._by_visitor.total() >= STREAMS or self._by_visitor[visitor] >= STREAMS // SHARE:
            raise Refused(503, "too many pages are looked at already; try again")
        self._by_visitor[visitor] += 1
        try:
            yield
        finally:
            self._by_visitor[visitor] -= 1
            self._by_visitor += Counter()  # drops those who have none

    @contextmanager
    def _watched(self, visit: Visit, asked: str) -> Iterator[LivePage]:
        key = (visit.visitor.role, visit.base, asked)
        page = self._pages.setdefault(key, LivePage(visit))
        page.viewers += 1
        page.rendering = page.rendering or asyncio.ensure_future(self._keep(page))
        try:
            yield page
        finally:
            page.viewers -= 1
            if not page.viewers:
                del self._pages[key]
                page.rendering.cancel()

    # -- rendering --------------------------------------------------------------------------------------------------
    async def _keep(self, page: LivePage) -> None:
        """Render it again and again, while somebody looks."""
        loop = asyncio.get_running_loop()
        while True:
            found = await loop.run_in_executor(self._threads, self._rendered, page.visit)
            page.take(found, self._numbers)
            await asyncio.sleep(max(PERIOD, REST * found.seconds))

    def _rendered(self, visit: Visit) -> Rendering:
        began = time.monotonic()
        try:
            reply = self._site.reply(visit)
            status, elements = reply.status, live_elements(reply.body.decode())
        except Exception:
            _log.exception("the dashboard's page %s could not be rendered", visit.path)
            status, elements = 500, {}
        return Rendering(status, elements, time.monotonic() - began)

    # -- telling ----------------------------------------------------------------------------------------------------
    async def _tell(self, page: LivePage, seen: int, send: Send) -> None:
        async def write(text: bytes) -> None:
            async with asyncio.timeout(WRITE_SECONDS):
                await send({"type": "http.response.body", "body": text, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await write(b"retry: 1000\n\n")  # milliseconds after which a browser connects again
        while True:
            if page.number > seen:
                told = msgspec.json.encode(page.since(seen))  # JSON has no line breaks
                seen = page.number
                await write(b"id: %s-%d\ndata: %s\n\n" % (self._run.encode(), seen, told))
                continue
            try:
                async with asyncio.timeout(BEAT):
                    await page.news.wait()
            except TimeoutError:
                await write(b":\n\n")

    def _seen(self, told: str) -> int:
        run, _, number = told.partition("-")
        return int(number) if run == self._run and number.isdecimal() and len(number) < 16 else 0

    # -- the server -------------------------------------------------------------------------------------------------
    def _watch_server(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._until_it_leaves())

    async def _until_it_leaves(self) -> None:
        """uvicorn waits for open connections before it says that it stops, and these would never end."""
        while self._streams:
            if _is_server_leaving():
                self.stop()
            await asyncio.sleep(LEAVING_SECONDS)


def _is_server_leaving() -> bool:
    """Whether the uvicorn that listens to this process's signals was told to stop."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


async def _gone(receive: Receive) -> None:
    with suppress(OSError):
        while (await receive())["type"] != "http.disconnect":
            pass


async def _revoked(visitor: Visitor, again: Callable[[], Awaitable[Visitor]]) -> None:
    """Returns when the visitor may no longer do what it may do now."""
    while (await again()).role >= visitor.role:
        await asyncio.sleep(LOOK_SECONDS)
