"""A pretend payment provider: takes payments over HTTP and calls the shop back when they are settled.

`shop.py` starts it. It is not part of what a shop would write; it is here to misbehave as real providers do. What it
does with a payment depends on the card's name:

    visa      takes the payment, says "processing", then "paid"
    early     calls back before it has answered the request
    declined  refuses at once (402)
    refused   takes it, and calls back later that it was declined
    busy      answers 503 twice, then works
    broken    takes the payment and drops the connection without an answer, once
    silent    takes the payment and calls back only when it was looked up: too late
    twice     calls back three times, once with a wrong signature
    pending   never settles; can be voided
    crossed   is paid at the very moment somebody voids it

Every callback has a body signed with the shared secret, and is sent again while the shop does not answer with 2xx.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = os.environ.get("PAYMENT_SECRET", "not a secret").encode()


@dataclass
class Payment:
    reference: str
    amount: int
    card: str
    callback: str
    status: str = "pending"
    charged: int = 0
    """How often money was taken: more than once would be the accident that all this is about."""


class Provider:
    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.payments: dict[str, Payment] = {}
        self.asked: Counter[str] = Counter()
        self.callbacks: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Answer a request for money; None drops the connection. The reference makes it idempotent."""
        card, reference = body["card"], body["reference"]
        with self._lock:
            self.asked[reference] += 1
            if card == "declined":
                return 402, {"error": "card declined"}
            if card == "busy" and self.asked[reference] < 3:
                return 503, {"error": "try again"}
            if reference in self.payments:
                return 200, asdict(self.payments[reference])
            payment = self.payments[reference] = Payment(reference, body["amount"], card, body["callback"])
        if card == "early":
            self._settle(payment, "paid")
        elif card not in ("silent", "pending", "crossed"):
            threading.Thread(target=self._later, args=[payment], daemon=True).start()
        return None if card == "broken" else (202, asdict(payment))

    def look_up(self, reference: str) -> tuple[int, dict[str, Any]]:
        payment = self.payments.get(reference)
        if payment is None:
            return 404, {"error": "no such payment"}
        if payment.card == "silent" and payment.status == "pending":
            self._change(payment, "paid")
            threading.Thread(target=self._call_back, args=[payment, "paid"], daemon=True).start()
        return 200, asdict(payment)

    def void(self, reference: str) -> tuple[int, dict[str, Any]]:
        payment = self.payments[reference]
        if payment.card == "crossed" and payment.status == "pending":
            self._change(payment, "paid")
            threading.Thread(target=self._later_crossed, args=[payment], daemon=True).start()
        if payment.status == "paid":
            return 409, {"error": "it is paid already"}
        self._change(payment, "voided")
        return 200, asdict(payment)

    def refund(self, reference: str) -> tuple[int, dict[str, Any]]:
        payment = self.payments[reference]
        self._change(payment, "refunded")
        return 200, asdict(payment)

    def books(self) -> tuple[int, dict[str, Any]]:
        payments = {one.reference: asdict(one) for one in self.payments.values()}
        return 200, {"payments": payments, "asked": self.asked, "callbacks": self.callbacks}

    # -- what happens later -------------------------------------------------------------------------------------------
    def _later(self, payment: Payment) -> None:
        if payment.card == "visa":
            time.sleep(self.delay / 2)
            self._call_back(payment, "processing")
        time.sleep(self.delay)
        self._settle(payment, "declined" if payment.card == "refused" else "paid")

    def _later_crossed(self, payment: Payment) -> None:
        time.sleep(self.delay)
        self._call_back(payment, "paid")

    def _settle(self, payment: Payment, status: str) -> None:
        self._change(payment, status)
        event = self._call_back(payment, status, forged=payment.card == "twice")
        if payment.card == "twice":
            self._call_back(payment, status, event)
            self._call_back(payment, status, event)

    def _change(self, payment: Payment, status: str) -> None:
        with self._lock:
            if status == "paid" and payment.status != "paid":
                payment.charged += 1
            payment.status = status

    def _call_back(self, payment: Payment, status: str, event: str = "", forged: bool = False) -> str:
        """Tell the shop, up to ten times; a forged one is told once, and must be refused."""
        event = event or uuid.uuid4().hex
        told = {"event": event, "reference": payment.reference, "status": status, "amount": payment.amount}
        body = json.dumps(told).encode()
        signature = hmac.new(b"a guess" if forged else SECRET, body, hashlib.sha256).hexdigest()
        headers = {"Content-Type": "application/json", "X-Signature": signature}
        for _ in range(1 if forged else 10):
            request = urllib.request.Request(payment.callback, body, headers)
            try:
                with urllib.request.urlopen(request, timeout=10) as reply:
                    self.callbacks[json.load(reply)["became"]] += 1
                    break
            except urllib.error.HTTPError as error:
                self.callbacks[str(error.code)] += 1
            except OSError:
                self.callbacks["unreachable"] += 1
            time.sleep(self.delay)
        return event


class Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        path = self.path.strip("/").split("/")
        self._reply(self.provider.books() if path == ["books"] else self.provider.look_up(path[-1]))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        match self.path.strip("/").split("/"):
            case ["payments"]:
                self._reply(self.provider.take(json.loads(body)))
            case ["payments", reference, "void"]:
                self._reply(self.provider.void(reference))
            case ["payments", reference, "refund"]:
                self._reply(self.provider.refund(reference))
            case _:
                self._reply((404, {"error": "no such page"}))

    def _reply(self, answer: tuple[int, dict[str, Any]] | None) -> None:
        if answer is None:
            self.close_connection = True  # and nothing was said: the caller cannot know what became of its request
            return
        status, body = answer
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="A pretend payment provider.")
    parser.add_argument("--port", type=int, default=0, help="0: any free one; it is printed")
    parser.add_argument("--delay", type=float, default=0.2, help="seconds a payment takes")
    parser.add_argument("--while-open", action="store_true", help="end when standard input closes")
    options = parser.parse_args()
    Handler.provider = Provider(options.delay)
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
