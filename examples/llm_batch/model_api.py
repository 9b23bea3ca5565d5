"""A pretend batch API of a language model: files of prompts in, files of answers out, hours later.

`prompts.py` starts it. Its hours last LLM_HOUR seconds, its minutes LLM_MINUTE. It is as difficult as real ones are:

- It takes LIMIT requests in any minute and answers 429 to the others.
- The first batch is made, but the request is answered with 500; it is known by its Idempotency-Key afterwards.
- The second batch expires half done, the third never ends unless it is cancelled; others take two hours.
- A prompt with "busy" in it fails the first time it is tried, one with "forbidden" always.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOUR = float(os.environ.get("LLM_HOUR", "1"))
MINUTE = float(os.environ.get("LLM_MINUTE", "1"))
LIMIT = 20
DURATION, WINDOW = 2, 4
"""Hours that a batch takes, and after which it expires."""


@dataclass
class Batch:
    id: str
    file: str
    kind: str
    began: float = field(default_factory=time.monotonic)
    status: str = "in_progress"
    output: str = ""

    @property
    def shown(self) -> dict[str, str]:
        return {"id": self.id, "status": self.status, "output": self.output}


class Model:
    def __init__(self) -> None:
        self.files: dict[str, list[dict[str, Any]]] = {}
        self.batches: dict[str, Batch] = {}
        self.by_idempotency: dict[str, Batch] = {}
        self.tried: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.requests = self.refused = self.peak = 0
        self._recent: deque[float] = deque()
        self.lock = threading.Lock()

    def has_room(self) -> bool:
        """Whether one more request fits into this minute."""
        now = time.monotonic()
        while self._recent and self._recent[0] <= now - MINUTE:
            self._recent.popleft()
        if len(self._recent) >= LIMIT:
            self.refused += 1
            return False
        self._recent.append(now)
        self.requests += 1
        self.peak = max(self.peak, len(self._recent))
        return True

    def keep(self, lines: list[dict[str, Any]]) -> str:
        name = f"file-{len(self.files) + 1}"
        self.files[name] = lines
        return name

    def begin(self, file: str, idempotency: str) -> tuple[int, dict[str, str]]:
        if idempotency in self.by_idempotency:
            return 200, self.by_idempotency[idempotency].shown
        number = len(self.batches) + 1
        batch = Batch(f"batch-{os.getpid()}-{number}", file, {2: "expires", 3: "stuck"}.get(number, "good"))
        self.batches[batch.id] = self.by_idempotency[idempotency] = batch
        return (500, {"error": "internal"}) if number == 1 else (200, batch.shown)

    def look(self, job_id: str) -> dict[str, str]:
        batch = self.batches[job_id]
        hours = (time.monotonic() - batch.began) / HOUR
        if batch.status == "in_progress" and batch.kind == "good" and hours >= DURATION:
            self._finish(batch, "completed", len(self.files[batch.file]))
        if batch.status == "in_progress" and batch.kind == "expires" and hours >= WINDOW:
            self._finish(batch, "expired", len(self.files[batch.file]) // 2)
        return batch.shown

    def cancel(self, job_id: str) -> dict[str, str]:
        if self.batches[job_id].status == "in_progress":
            self.batches[job_id].status = "cancelled"
        return self.batches[job_id].shown

    def _finish(self, batch: Batch, status: str, done: int) -> None:
        lines = self.files[batch.file]
        answers = [self._answer(line) for line in lines[:done]]
        answers += [{"id": line["id"], "error": "expired"} for line in lines[done:]]
        batch.status, batch.output = status, self.keep(answers)

    def _answer(self, line: dict[str, Any]) -> dict[str, Any]:
        job_id, prompt = line["id"], line["prompt"]
        self.tried[job_id] += 1
        if "forbidden" in prompt:
            return {"id": job_id, "error": "refused"}
        if "busy" in prompt and self.tried[job_id] == 1:
            return {"id": job_id, "error": "overloaded"}
        self.answered[job_id] += 1
        return {"id": job_id, "text": f"{prompt.upper()}!"}

    @property
    def usage(self) -> dict[str, Any]:
        kinds = Counter(batch.status for batch in self.batches.values())
        return {
            "requests": self.requests, "refused": self.refused, "peak": self.peak, "limit": LIMIT, "batches": kinds,
            "answered": len(self.answered), "answered twice": sum(count > 1 for count in self.answered.values()),
        }  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    model: Model

    def do_GET(self) -> None:
        self._handle("")

    def do_POST(self) -> None:
        self._handle(self.rfile.read(int(self.headers["Content-Length"] or 0)).decode())

    def _handle(self, body: str) -> None:
        with self.model.lock:
            status, answer = self._answer(body)
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", str(MINUTE))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _answer(self, body: str) -> tuple[int, bytes]:
        model = self.model
        if self.path == "/usage":
            return 200, json.dumps(model.usage).encode()
        if not model.has_room():
            return 429, b"{}"
        match self.command, *self.path.strip("/").split("/"):
            case _, "batches", job_id, *_ if job_id not in model.batches:
                return 404, b"{}"
            case "POST", "files":
                return 200, json.dumps({"id": model.keep([json.loads(line) for line in body.splitlines()])}).encode()
            case "GET", "files", job_id:
                return 200, "\n".join(json.dumps(line) for line in model.files[job_id]).encode()
            case "POST", "batches":
                status, shown = model.begin(json.loads(body)["file"], self.headers["Idempotency-Key"])
                return status, json.dumps(shown).encode()
            case "GET", "batches", job_id:
                return 200, json.dumps(model.look(job_id)).encode()
            case "POST", "batches", job_id, "cancel":
                return 200, json.dumps(model.cancel(job_id)).encode()
            case _:
                return 404, b"{}"

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="A pretend batch API of a language model.")
    parser.add_argument("--port", type=int, default=0, help="0: any free one; it is printed")
    parser.add_argument("--while-open", action="store_true", help="end when standard input closes")
    options = parser.parse_args()
    Handler.model = Model()
    ThreadingHTTPServer.request_queue_size = 100  # of the 5 it has, a burst of connections resets some
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    print(server.server_port, flush=True)
    if options.while_open:  # whoever started it may be killed, and nobody else would end it
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
    else:
        server.serve_forever()


if __name__ == "__main__":
    main()
