"""A dashboard behind a real uvicorn on loopback, and a viewer of one of its streams."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any, Final, Self

import uvicorn

from hipq import Hipq
from hipq.dashboard.visit import PageRoute, Reply, Role, Visit

HEAD: Final = (
    '<!doctype html><meta charset="utf-8"><meta name="csrf" content="of this visitor"><title>Watched</title>'
    '<link rel="icon" href="data:,">'
    '<script src="{base}/static/live.js" defer></script><body{mode}>'
    '<button id="pause" aria-pressed="false">Pause</button><p id="offline" hidden>The connection is lost.</p>'
)


class Served:
    """An application in a thread of its own. `stop` and `start` again: on the same port."""

    def __init__(self, application: Any, port: int = 0, **options: Any) -> None:
        self._application, self._options = application, options
        self.port = port
        self.start()

    def start(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        self.server = uvicorn.Server(uvicorn.Config(self._application, log_level="warning", **self._options))
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._listening]})
        self._thread.start()
        eventually(lambda: self.server.started)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive(), "an open stream keeps the server"

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        found = reply.status, reply.read().decode()
        connection.close()
        return found

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Viewer:
    """Somebody who reads a stream."""

    def __init__(self, served: Served, page: str, path: str = "/live", **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request("GET", f"{path}?page={page}", headers=sent)
        self.reply = self.connection.getresponse()
        self.id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def event(self) -> dict[str, Any]:
        """The next change."""
        while line := self.reply.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                self.id = value
            elif name == "data":
                return dict(json.loads(value))
        raise EOFError("the stream has ended")

    def close(self) -> None:
        self.reply.close()
        self.connection.close()


class Watched:
    """A page of one's own, with the jobs of an instance on it; it knows how often it was rendered, and for whom."""

    def __init__(self, app: Hipq, mode: str = "") -> None:
        self.app = app
        self.mode = f' data-live-mode="{mode}"' if mode else ""
        self.visits: list[Visit] = []
        self.parts: dict[str, str] = {}
        """More elements, by id."""
        self.error: Exception | None = None

    @property
    def route(self) -> PageRoute:
        return PageRoute("GET", "/watched/{what}", Role.VIEW, self.page)

    def page(self, _site: Any, visit: Visit) -> Reply:
        self.visits.append(visit)
        if self.error:
            raise self.error
        parts = "".join(f'<section id="{name}" data-live>{html}</section>' for name, html in self.parts.items())
        rows = "".join(self._row(job) for job in self.app.jobs("orders", limit=50))
        if visit.path == "/watched/count":
            rows = f'<tr id="count" data-live><td>{self.app.jobs.count("orders")}</td></tr>'
        main = f'<main id="main">{parts}<table><tbody>{rows}</tbody></table></main>'
        head = "" if visit.is_fragment else HEAD.format(base=visit.base, mode=self.mode)
        return Reply(200, (head + main).encode())

    @staticmethod
    def _row(job: Any) -> str:
        return (
            f'<tr id="job-{job.id}" data-live><td><input type="checkbox"></td><td class="state">{job.state} {job.code}'
            f'</td><td class="priority">{job.priority}</td><td><time datetime="x">{time.monotonic()}</time></td></tr>'
        )


def eventually(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.01)
    return found


def logged_in(url: str) -> str:
    """The page that a browser shows which opens the URL with a token."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    browser.addheaders = [("accept", "text/html")]
    with browser.open(url, timeout=30) as page:
        return str(page.read().decode())


def written(served: Served) -> int:
    """Bytes that wait in the server for those who do not read."""
    connections: Any = served.server.server_state.connections
    return max((one.transport.get_write_buffer_size() for one in list(connections)), default=0)
