"""The shop's HTTP address for the bank's answers. An answer goes to hipq, and is acknowledged when it is stored."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hipq import HipqError, JobType


class Reception(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def __init__(self, charge: JobType) -> None:
        super().__init__(("127.0.0.1", 0), _Desk)
        self._charge = charge
        self._lock = threading.Lock()
        self._words: Counter[str] = Counter()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return self.server_port

    @property
    def words(self) -> dict[str, int]:
        """hipq's outcomes of the answers, counted."""
        with self._lock:
            return dict(self._words)

    def take(self, answer: dict[str, Any]) -> str:
        outcome = self._charge.answer(
            answer["key"],
            answer["data"],
            answer_id=answer["answer_id"],
            error=answer["error"],
            attempt=answer["attempt"],
        )
        with self._lock:
            self._words[outcome] += 1
        return outcome

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the bank has gone; its ledger will say so

    def __enter__(self) -> Reception:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Desk(BaseHTTPRequestHandler):
    server: Reception

    def do_POST(self) -> None:
        answer = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            status, reply = 200, {"outcome": self.server.take(answer)}
        except HipqError as error:
            status, reply = 503, {"error": str(error)}  # not stored: the bank sends it again
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # the terminal is the demo's
