"""A pretend bank: a process of its own that takes requests and answers them later, in as many ways as banks do.

It is started by the demo as a script and needs nothing but Python: what it says of hipq it can only know from outside.

    POST /requests   {"key", "attempt", "region", "number"}: taken (202), or refused (500)
    POST /call-off   {"key", "attempt"}: nobody waits for this one any more
    POST /ledger     what it has counted so far

Answers go to the port it was given. It ends when its standard input does: also when the demo was killed.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

ANSWER_WITHIN: Final = 2.0
"""Seconds after which the shop gives up waiting for an answer, at a pace of 1: the demo's time-out. The bank uses it
only to be late on purpose."""
ATTEMPTS: Final = 3
"""How often the shop asks."""
POSTMEN: Final = 4
MANNERS: Final = (
    *["plain"] * 22, *["twice"] * 3, *["early"] * 3, *["declined"] * 2, *["corrected"] * 2, *["slow"] * 2,
    *["broken"] * 2, *["refused"] * 2, "silent", "hopeless",
)  # fmt: skip
"""What the bank does with forty orders; it does the same with the next forty."""
_DATA: Final[dict[str, Any]] = {
    "plain": {"status": "paid"}, "declined": {"status": "declined"}, "broken": "our computer is down",
}  # fmt: skip


class Ledger:
    """What the bank has seen, counted under one lock, so that all of it is true of one moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._words: Counter[str] = Counter()
        self._open: dict[tuple[str, int], str] = {}
        """The requests that the bank works on, and their regions."""
        self._most: Counter[str] = Counter()

    def count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def opened(self, key: str, attempt: int, region: str) -> None:
        with self._lock:
            self._counts["requests"] += 1
            self._open[key, attempt] = region
            for name, used in self._used().items():
                self._most[name] = max(self._most[name], used)

    def closed(self, key: str, attempt: int) -> bool:
        """Close a request; returns whether it was open."""
        with self._lock:
            return self._open.pop((key, attempt), None) is not None

    def acknowledged(self, word: str) -> None:
        with self._lock:
            self._counts["sent"] += 1
            self._words[word] += 1

    def _used(self) -> Counter[str]:
        return Counter({"all": len(self._open)}) + Counter(self._open.values())

    def shown(self) -> dict[str, Any]:
        with self._lock:
            return {
                **{name: self._counts[name] for name in COUNTED},
                "open": len(self._open), "most": dict(self._most), "words": dict(self._words),
            }  # fmt: skip


COUNTED: Final = ("requests", "refused", "answered", "never", "called off", "sent", "copies", "undelivered")


class Postbox:
    """Answers that are to be sent at their time, and the threads that send them."""

    def __init__(self, ledger: Ledger, port: int) -> None:
        self._ledger, self._port = ledger, port
        self._change = threading.Condition()
        self._due: list[tuple[float, int, dict[str, Any]]] = []
        self._posted = 0
        self._under_way = 0
        for _ in range(POSTMEN):
            threading.Thread(target=self._walk, daemon=True).start()

    def post(self, answer: dict[str, Any], delay: float) -> None:
        with self._change:
            self._posted += 1
            heapq.heappush(self._due, (time.monotonic() + delay, self._posted, answer))
            self._change.notify()

    @property
    def unsent(self) -> int:
        with self._change:
            return len(self._due) + self._under_way

    def _walk(self) -> None:
        while True:
            with self._change:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._change.wait(self._due[0][0] - time.monotonic() if self._due else None)
                answer = heapq.heappop(self._due)[2]
                self._under_way += 1
            if not self.deliver(answer):
                self.post(answer, 0.2)  # the same answer with the same id: it may have arrived all the same
            with self._change:
                self._under_way -= 1

    def deliver(self, answer: dict[str, Any]) -> bool:
        """Send an answer to the shop, and note the shop's reply. The request counts as open until just before."""
        self._ledger.closed(answer["key"], answer["attempt"])
        try:
            status, reply = call(self._port, "POST", "/answers", answer)
        except (OSError, HTTPException, ValueError):
            status, reply = 0, {}
        if status != 200:
            self._ledger.count("undelivered")
            return False
        self._ledger.acknowledged(reply["outcome"])
        return True


def call(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request to the other side; the patience is long, because a request that was taken must not look refused."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


class Bank:
    def __init__(self, ledger: Ledger, postbox: Postbox, pace: float) -> None:
        self.ledger, self.postbox = ledger, postbox
        self._pace = pace
        self._chance = random.Random("the pretend bank")
        self._manners = list(MANNERS)
        self._chance.shuffle(self._manners)

    def ask(self, request: dict[str, Any]) -> int:
        """Accept a request; returns the HTTP status of the reply."""
        key, attempt = request["key"], request["attempt"]
        self.ledger.opened(key, attempt, request["region"])
        manner = self._manner(request["number"], attempt)
        if manner == "refused":
            self.ledger.closed(key, attempt)
            self.ledger.count("refused")
            return 500
        if manner == "never":
            self.ledger.count("never")
            return 202
        self.ledger.count("answered")
        answer = {
            "key": key, "attempt": attempt, "answer_id": f"{key}/{attempt}", "error": manner == "broken",
            "data": _DATA.get(manner, _DATA["plain"]),
        }  # fmt: skip
        if manner == "early":
            if not self.postbox.deliver(answer):
                self.postbox.post(answer, 0.2)
            return 202
        delay = self._delay(manner)
        self.postbox.post(answer, delay)
        if manner == "twice":
            self.ledger.count("copies")
            self.postbox.post(answer, delay + 0.3 * self._pace)
        elif manner == "corrected":
            self.ledger.count("copies")
            changed = {"answer_id": f"{key}/{attempt}/corrected", "data": _DATA["declined"]}
            self.postbox.post(answer | changed, delay + self._pace)
        return 202

    def _manner(self, number: int, attempt: int) -> str:
        manner = self._manners[number % len(self._manners)]
        if manner == "silent" or (manner == "hopeless" and attempt < ATTEMPTS):
            return "never"
        if manner == "hopeless":
            return "late"
        return "plain" if attempt > 1 else manner

    def _delay(self, manner: str) -> float:
        late = {
            "slow": ANSWER_WITHIN + 0.2,
            "late": ANSWER_WITHIN + 1.5,
        }  # while it is to be tried again; when all is over
        return (late.get(manner) or self._chance.uniform(0.4, 1.2)) * self._pace

    def call_off(self, key: str, attempt: int) -> None:
        if self.ledger.closed(key, attempt):
            self.ledger.count("called off")

    def reply(self, path: str, body: Any) -> tuple[int, Any]:
        """What is said at the desk."""
        if path == "/requests":
            status = self.ask(body)
            return status, {"said": "taken" if status == 202 else "come back later"}
        if path == "/call-off":
            self.call_off(body["key"], body["attempt"])
            return 200, {}
        unsent = self.postbox.unsent  # first: if there is none, the counts do not change any more
        return 200, self.ledger.shown() | {"unsent": unsent}


Reply = Callable[[str, Any], tuple[int, Any]]
"""What a request to this path, with this JSON, is answered: a status, and JSON."""


class Server(ThreadingHTTPServer):
    """Takes JSON on a free port and answers with JSON, in threads of its own."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, reply: Reply) -> None:
        super().__init__(("127.0.0.1", 0), Desk)
        self.reply = reply
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the caller has gone: nobody waits for the reply


class Desk(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"]))
        status, reply = self.server.reply(self.path, json.loads(said or b"null"))
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # the terminal is the demo's


def main(callback_port: int, pace: float) -> None:
    ledger = Ledger()
    bank = Bank(ledger, Postbox(ledger, callback_port), pace)
    print(Server(bank.reply).server_port, flush=True)
    sys.stdin.buffer.read()  # nothing arrives: the pipe closes when the demo ends, however it ends
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
