"""The service that is asked: takes requests in one way, answers each later, in another order, sometimes twice.

What it does with a request goes by its key: `plain-7`, `twice-7`, `error-7`; `early-7` was answered before it was
asked; `late-7` is answered when the file `late` is there. Beside them it sends things that nobody can read.

    python -m tests.acceptance.service FOLDER WHERE_REQUESTS_COME WHERE_ANSWERS_GO EARLY
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from hipq.errors import TransportUnavailable
from hipq.transports import address, http, sender, source
from hipq.transports.base import CALLBACK_HEADER, KEY_HEADER, Outgoing

GARBAGE = (b"\xff\xfe\x00", b"{not json", b'{"no": "reference"}', b'{"ref": null}', b'"\\u0000"')
WINDOW = 400
THREADS = 16


def answer_to(key: str) -> dict[str, str]:
    return {"ref": key, "status": "error" if key.startswith("error") else "ok", "value": f"answer to {key}"}


class Request:
    def __init__(self, key: str, callback: str = "") -> None:
        self.key = key
        self.callback = callback


class Checkpoints:
    """This process is alone."""

    def __init__(self) -> None:
        self.positions: dict[str, str] = {}

    def take(self, part: str) -> str | None:
        return self.positions.get(part, "")

    def keep(self, part: str, position: str) -> bool:
        self.positions[part] = position
        return True

    def read(self) -> dict[str, str]:
        return self.positions

    def leave(self, part: str) -> None:
        pass


def by_stream(url: str) -> Iterator[Sequence[Request]]:
    """Requests that come as messages, some at a time; acknowledged when they were dealt with."""
    places = Checkpoints()
    while True:
        try:
            opened = source(address(url), "service", places)
            try:
                while True:
                    messages = opened.receive(WINDOW, 0.3)
                    yield [Request(message.headers.get(KEY_HEADER) or message.key) for message in messages]
                    opened.done(messages)
            finally:
                opened.close()
        except TransportUnavailable:
            time.sleep(0.3)


def by_http(port: int) -> Iterator[Sequence[Request]]:
    """Requests that come by HTTP, each replied to at once with 202; a request that was answered early, after that."""
    came: SimpleQueue[Request] = SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            request = Request(self.headers[KEY_HEADER], self.headers.get(CALLBACK_HEADER, ""))
            if request.key.startswith("early") and request.callback:
                post(request.callback, json.dumps(answer_to(request.key)).encode())
            else:
                came.put(request)
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    threading.Thread(target=Server(("127.0.0.1", port), Handler).serve_forever, daemon=True).start()
    while True:
        found = []
        try:
            found.append(came.get(timeout=0.3))
            while len(found) < WINDOW:
                found.append(came.get_nowait())
        except Empty:
            pass
        yield found


def post(url: str, body: bytes) -> None:
    """Bring an answer by HTTP, until it has been taken or refused for good."""
    while True:
        try:
            failed = str(b'"error"' in body).lower()
            headers = {"content-type": "application/json", "hipq-error": failed}
            reply = http.request("POST", url, body, headers, 10)
            if reply.status < 500 and reply.status != 429:
                return
        except TransportUnavailable:
            pass
        time.sleep(0.1)


class Answering:
    def __init__(self, where: str) -> None:
        self._where = where
        self._pool = ThreadPoolExecutor(THREADS)
        self._tens = Tens(where) if where.startswith("sqs:") else None

    def send(self, some: Sequence[tuple[Request, bytes]]) -> None:
        if self._tens:
            list(self._pool.map(self._tens.send, (some[start : start + 10] for start in range(0, len(some), 10))))
        else:
            list(self._pool.map(self._send_one, some))

    def _send_one(self, one: tuple[Request, bytes]) -> None:
        request, body = one
        if request.callback:
            post(request.callback, body)
            return
        while True:
            try:
                sender(self._where).send(Outgoing(body, request.key), 10)
                return
            except TransportUnavailable:
                time.sleep(0.1)  # whether it was sent is not known: then it is sent twice


class Tens:
    """Sends to SQS ten at a time, as a busy service would."""

    def __init__(self, where: str) -> None:
        from hipq.transports import aws

        self._address = address(where)
        self._client = aws.client(self._address, connect=5, read=10, attempts=5)
        self._queue = self._client.get_queue_url(QueueName=self._address.name)["QueueUrl"]

    def send(self, some: Sequence[tuple[Request, bytes]]) -> None:
        from hipq.transports.sqs import outgoing

        messages = [outgoing(self._address, Outgoing(body, request.key)) for request, body in some]
        entries = [{"Id": str(number), **message} for number, message in enumerate(messages)]
        answer = self._client.send_message_batch(QueueUrl=self._queue, Entries=entries)
        assert len(answer["Successful"]) == len(some), answer


def main(folder: Path, come: str, go: str, early: int) -> None:
    chance = random.Random(7)
    answering = Answering(go)
    requests = by_http(int(come.rpartition(":")[2])) if come.startswith("http") else by_stream(come)
    assert not next(requests), "it is ready to be asked, and nobody has asked yet"
    answering.send([(Request(key), body(key)) for key in (f"early-{n}" for n in range(early))] if go else [])
    (folder / "early").touch()
    seen: set[str] = set()
    late: list[Request] = []
    again: list[tuple[Request, bytes]] = []
    bad = 0
    for some in requests:
        out, again = again, []
        for request in some:
            if request.key in seen:
                continue
            seen.add(request.key)
            kind = request.key.partition("-")[0]
            if kind == "late":
                late.append(request)
            elif kind != "early":
                out.append((request, body(request.key)))
            if kind == "twice":
                again.append((request, body(request.key)))
            if go and len(seen) % 100 == 0:
                out.append((Request("garbage-key" if bad % 5 else ""), GARBAGE[bad % len(GARBAGE)]))
                bad += 1
        if late and (folder / "late").exists():
            out += [(request, body(request.key)) for request in late]
            late = []
        chance.shuffle(out)
        answering.send(out)
        _note(folder / "bad", bad)
        _note(folder / "seen", len(seen))
        if (folder / "stop").exists():
            return


def _note(file: Path, number: int) -> None:
    """Whole at once: somebody may read it at any moment."""
    new = file.with_suffix(".new")
    new.write_text(str(number))
    new.replace(file)


def body(key: str) -> bytes:
    return json.dumps(answer_to(key)).encode()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
