"""A pretend bank: a process of its own that takes requests and answers them later, in as many ways as banks do.

It is started by the demo as a script and needs nothing but Python: what it says of hipq it can only know from outside.

    POST /requests   {"key", "attempt", "region", "number"}: taken (202), or refused (500)
    POST /call-off   {"key", "attempt"}: nobody waits for this one any more
    POST /ledger     what it has counted so far

Answers go to the port it was given. It ends when its standard input does: also when the demo was killed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
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
MANNERS: Final = (
    *["plain"] * 22, *["twice"] * 3, *["early"] * 3, *["declined"] * 2, *["corrected"] * 2, *["slow"] * 2,
    *["broken"] * 2, *["refused"] * 2, "silent", "hopeless",
)  # fmt: skip
"""What the bank does with forty orders; it does the same with the next forty."""
COUNTED: Final = ("requests", "refused", "answered", "never", "called off", "sent", "copies", "undelivered", "unsent")
_PAID: Final = {"status": "paid"}
_DECLINED: Final = {"status": "declined"}
_DATA: Final[dict[str, Any]] = {"declined": _DECLINED, "broken": "our computer is down"}
_LATE: Final = {"slow": ANSWER_WITHIN + 0.2, "late": ANSWER_WITHIN + 1.5}
"""While it is to be tried again; when all is over."""


class Bank:
    """What it has seen is counted under one lock, so that all of it is true of one moment."""

    def __init__(self, port: int, pace: float) -> None:
        self._port, self._pace = port, pace
        self._lock = threading.Lock()
        self._counts = Counter(dict.fromkeys(COUNTED, 0))
        self._words: Counter[str] = Counter()
        self._open: dict[tuple[str, int], str] = {}
        """The requests that the bank works on, and their regions."""
        self._most: Counter[str] = Counter()
        self._chance = random.Random("the pretend bank")
        self._manners = list(MANNERS)
        self._chance.shuffle(self._manners)

    # -- at the desk ------------------------------------------------------------------------------------------------
    def reply(self, path: str, body: Any) -> tuple[int, Any]:
        if path == "/requests":
            return self._ask(**body)
        with self._lock:
            if path == "/call-off":
                self._counts["called off"] += self._open.pop((body["key"], body["attempt"]), "") != ""
            return 200, {**self._counts, "open": len(self._open), "most": self._most, "words": self._words}

    def _ask(self, key: str, attempt: int, region: str, number: int) -> tuple[int, Any]:
        manner = self._manner(number, attempt)
        fate = manner if manner in ("refused", "never") else "answered"
        with self._lock:
            self._counts.update(["requests", fate])
            self._open[key, attempt] = region
            self._most |= Counter({"all": len(self._open), **Counter(self._open.values())})
            if fate == "refused":
                del self._open[key, attempt]
                return 500, {"said": "come back later"}
        if fate == "answered":
            self._answer(key, attempt, manner)
        return 202, {"said": "taken"}

    def _manner(self, number: int, attempt: int) -> str:
        manner = self._manners[number % len(self._manners)]
        if manner == "silent" or (manner == "hopeless" and attempt < ATTEMPTS):
            return "never"
        if manner == "hopeless":
            return "late"
        return "plain" if attempt > 1 else manner

    # -- answers ----------------------------------------------------------------------------------------------------
    def _answer(self, key: str, attempt: int, manner: str) -> None:
        answer = {
            "key": key, "attempt": attempt, "answer_id": f"{key}/{attempt}", "error": manner == "broken",
            "data": _DATA.get(manner, _PAID),
        }  # fmt: skip
        delay = 0.0 if manner == "early" else _LATE.get(manner) or self._chance.uniform(0.4, 1.2)
        with self._lock:
            self._counts["copies"] += manner in ("twice", "corrected")
            self._counts["unsent"] += 2 if manner in ("twice", "corrected") else 1
        if manner == "early":
            self._send(answer)
            return
        self._later(answer, delay)
        if manner == "twice":
            self._later(answer, delay + 0.3)
        elif manner == "corrected":
            changed = {"answer_id": f"{key}/{attempt}/corrected", "data": _DECLINED}
            self._later(answer | changed, delay + 1)

    def _later(self, answer: dict[str, Any], delay: float) -> None:
        timer = threading.Timer(delay * self._pace, self._send, [answer])
        timer.daemon = True
        timer.start()

    def _send(self, answer: dict[str, Any]) -> None:
        """Send an answer to the shop, and note the shop's reply. The request counts as open until just before."""
        with self._lock:
            self._open.pop((answer["key"], answer["attempt"]), None)
        try:
            status, reply = call(self._port, "/answers", answer)
        except (OSError, HTTPException, ValueError):
            status, reply = 0, {}
        with self._lock:
            if status == 200:
                self._counts["sent"] += 1
                self._counts["unsent"] -= 1
                self._words[reply["outcome"]] += 1
                return
            self._counts["undelivered"] += 1
        self._later(answer, 0.2)  # the same answer with the same id: it may have arrived all the same


# -- HTTP ------------------------------------------------------------------------------------------------------------
def call(port: int, path: str, body: Any = None) -> tuple[int, Any]:
    """One request to the other side; the patience is long, because a request that was taken must not look refused."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


class Server(ThreadingHTTPServer):
    """Takes JSON on a free port and answers with JSON, in threads of its own. `reply`: what a request to this path,
    with this JSON, is answered, a status and JSON."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, reply: Callable[[str, Any], tuple[int, Any]]) -> None:
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


if __name__ == "__main__":
    bank = Bank(int(sys.argv[1]), float(sys.argv[2]))
    print(Server(bank.reply).server_port, flush=True)
    sys.stdin.buffer.read()  # nothing arrives: the pipe closes when the demo ends, however it ends
    os._exit(0)
