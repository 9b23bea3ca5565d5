"""A few hundred downloads in a plain script, which goes on where it stopped.

    python examples/script.py

fetches 300 files from a pretend server, which it starts in a second process and which fails now and then. Press Ctrl-C,
or kill it with -9, and start it again: what was fetched is not fetched again, what was under way is, and at the end
every file is there. Started once more, it has nothing to do and says so.

What it shows:
- All downloads are added in one transaction, so a script that is killed has added all of them or none.
- `app.run(until_empty=True)` works on what is due. Downloads that are to be tried again later are not due yet, so the
  script runs it until nothing is left.
- A handler that may run twice: it writes to a file beside, and renames that when it is whole.
- After Ctrl-C, running downloads finish first; after kill -9 they come back as soon as the lease of the dead process
  has run out (`lease=`, here two seconds).

The files and the database, `downloads.db`, are in the current folder, or where `--folder` says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from hipq import Failed, Hipq, Job, backoff

app = Hipq("downloads", "sqlite:///downloads.db")
files = app.queue("files")


@files.job(run_timeout=60, retry=backoff(attempts=6, base=0.2, cap=60, on=(OSError, HTTPException)))
def fetch(job: Job[dict[str, str]]) -> int:
    """Fetch one file; its size is the job's result."""
    name = job.data["name"]
    try:
        with urllib.request.urlopen(f"{os.environ['DOWNLOADS_URL']}/{name}", timeout=30) as reply:
            body: bytes = reply.read()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise Failed(f"there is no {name}") from None
        raise
    beside = Path("files", f".{name}.{os.getpid()}")
    beside.write_bytes(body)
    beside.rename(Path("files", name))
    return len(body)


def live() -> int:
    return app.jobs.count("files", live=True)


def work(many: int) -> int:
    """Fetch all there is to fetch, or as much as we are let; an exit status."""
    Path("files").mkdir(exist_ok=True)
    if not app.jobs("files", limit=1):  # else it was started before
        names = [f"file-{number:03}.txt" for number in range(many)]
        fetch.enqueue_many([{"name": name} for name in names], keys=names)
        print(f"{many} downloads added", flush=True)
    asked_to_stop = threading.Event()
    app.events.subscribe(lambda _event: asked_to_stop.set(), "engine stopping")
    with suppress(KeyboardInterrupt):  # Ctrl-C between two runs; during one, it ends that
        while (left := live()) and not asked_to_stop.is_set():
            print(f"{left} downloads left", flush=True)
            app.run(until_empty=True, concurrency=8, lease=2)
            asked_to_stop.wait(0.2)  # until the next ones are to be tried again
    ended, left = Counter(job.code for job in app.jobs("files", state="final", limit=10_000)), live()
    print(f"{ended['ok']} fetched, {ended['failed']} not found, {ended['error']} given up, {left} left", flush=True)
    return 1 if left or ended["error"] else 0


# -- a pretend server -------------------------------------------------------------------------------------------------
class Server(BaseHTTPRequestHandler):
    """Each seventh file fails twice, each fiftieth is not there, and each eleventh breaks off at the first try."""

    asked: ClassVar[Counter[str]] = Counter()
    sent: ClassVar[Counter[str]] = Counter()
    lock = threading.Lock()
    pause = 0.0

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if name == "books":
            self._reply(200, json.dumps({"asked": self.asked, "sent": self.sent}).encode())
            return
        with self.lock:
            self.asked[name] += 1
            asked, number = self.asked[name], int(name[5:8])
        time.sleep(self.pause)
        if number % 50 == 49:
            self._reply(404, b"")
        elif number % 7 == 0 and asked < 3:
            self._reply(503, b"")
        elif number % 11 == 0 and asked == 1:
            self._reply(200, b"half of", 1000)
        else:
            self._reply(200, f"this is {name}\n".encode() * 100)
            with self.lock:
                self.sent[name] += 1

    def _reply(self, status: int, body: bytes, promised: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if promised is None else promised))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve(port: int, pause: float) -> None:
    Server.pause = pause
    ThreadingHTTPServer.request_queue_size = 100  # of the 5 it has, a burst of connections resets some
    server = ThreadingHTTPServer(("127.0.0.1", port), Server)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # which closes when whoever started it ends, in whatever way


@contextmanager
def pretended_server() -> Iterator[str]:
    command = [sys.executable, os.path.abspath(__file__), "--serve"]  # a session of its own: Ctrl-C is not for it
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.stdin.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="A few hundred downloads that go on where they stopped.")
    parser.add_argument("--folder", type=Path, default=Path(), help="where downloads.db and the files go")
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--url", help="a server that runs already, started with --serve")
    parser.add_argument("--serve", action="store_true", help="be the pretend server, until standard input closes")
    parser.add_argument("--port", type=int, default=0, help="of the pretend server; 0: any free one, it is printed")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds the pretend server takes for a file")
    options = parser.parse_args()
    if options.serve:
        serve(options.port, options.pause)
        return 0
    os.chdir(options.folder)
    if options.url:
        os.environ["DOWNLOADS_URL"] = options.url
        return work(options.files)
    with pretended_server() as os.environ["DOWNLOADS_URL"]:
        return work(options.files)


if __name__ == "__main__":
    sys.exit(main())
