"""A pretend network management system: takes changes over HTTP, and answers on another channel, a stream of records.

`changes.py` starts it. It bears CAPACITY units of work at a time, and of those a part for each region; whatever comes
on top of that it refuses with 503, and counts it. Emergencies pass, and do not count. What it does to a change:

    device ends with 0   "rejected": there is no such device
    device ends with 5   "fault" at the first try: the device was busy; try again
    else                 "done"

Records of the stream are numbered, and delivered at least once: each page begins with the last one of the page before.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

CAPACITY = 20
PARTS = {"east": 8, "north": 6, "west": 6}


class Network:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.stream = f"answers-{uuid.uuid4().hex[:8]}"
        self.records: list[dict[str, Any]] = []
        self.working: dict[str, dict[str, Any]] = {}
        self.taken: Counter[str] = Counter()
        self.refused = self.peak = 0
        self.peaks: Counter[str] = Counter()
        self.order: list[str] = []
        self._news = threading.Condition()

    def take(self, change: dict[str, Any]) -> int:
        """A status: 202 it is under way, 200 it was already, 503 there is too much to do."""
        key, region, weight = change["key"], change["region"], change["weight"]
        with self._news:
            if key in self.working:
                return 200
            counted = [one for one in self.working.values() if not one["emergency"]]
            total = sum(one["weight"] for one in counted) + weight
            of_region = sum(one["weight"] for one in counted if one["region"] == region) + weight
            if not change["emergency"]:
                if total > CAPACITY or of_region > PARTS[region]:
                    self.refused += 1
                    return 503
                self.peak, self.peaks[region] = max(self.peak, total), max(self.peaks[region], of_region)
            self.working[key] = change
            self.taken[key] += 1
            self.order.append(key)
        threading.Timer(self.seconds * weight, self._done, [change]).start()
        return 202

    def _done(self, change: dict[str, Any]) -> None:
        key, device = change["key"], change["device"]
        with self._news:
            status = "done"
            if device.endswith("0"):
                status = "rejected"
            elif device.endswith("5") and self.taken[key] == 1:
                status = "fault"
            del self.working[key]
            record = {"number": len(self.records), "kind": change["kind"], "key": key, "status": status}
            self.records.append(record)
            self._news.notify_all()

    def page(self, after: int, wait: float) -> dict[str, Any]:
        """Records after this number, the one before them once more; waits a while if there are none."""
        with self._news:
            self._news.wait_for(lambda: len(self.records) > after, wait)
            records = self.records[max(after - 1, 0) :] if len(self.records) > after else []
            return {"stream": self.stream, "records": records, "next": max(len(self.records), after)}

    @property
    def load(self) -> dict[str, Any]:
        return {
            "capacity": CAPACITY, "parts": PARTS, "refused": self.refused, "peak": self.peak, "peaks": self.peaks,
            "taken": self.taken, "order": self.order, "records": len(self.records),
        }  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    network: Network

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if url.path == "/answers":
            self._reply(200, self.network.page(int(query["after"][0]), float(query["wait"][0])))
        else:
            self._reply(200, self.network.load)

    def do_POST(self) -> None:
        change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._reply(self.network.take(change), {})

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="A pretend network management system.")
    parser.add_argument("--port", type=int, default=0, help="0: any free one; it is printed")
    parser.add_argument("--seconds", type=float, default=0.05, help="that a unit of work takes")
    parser.add_argument("--while-open", action="store_true", help="end when standard input closes")
    options = parser.parse_args()
    Handler.network = Network(options.seconds)
    ThreadingHTTPServer.request_queue_size = 100  # of the 5 it has, a burst of connections resets some
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    if options.while_open:  # whoever started it may be killed, and nobody else would end it
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
    else:
        server.serve_forever()


if __name__ == "__main__":
    main()
