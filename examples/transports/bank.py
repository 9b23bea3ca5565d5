"""A pretend bank: takes requests on one transport, and answers them later on the same one or on another.

    python examples/transports/bank.py redis          # starts a Redis of its own, and prints what to type next
    python examples/transports/bank.py redis://localhost:6379                                # or uses yours
    python examples/transports/bank.py http kafka     # asked over HTTP, it answers on Kafka

http, kafka, sqs, kinesis, nats, amqp, redis, mqtt; amqp needs a server to be named. It runs until Ctrl-C. It is no
part of what a shop would write: it is here to misbehave as real services do. What it does depends on the card:

    visa      paid
    slow      paid, a second later
    declined  not paid
    busy      the first time the bank says that it failed; then paid
    twice     paid, and told twice
    garbled   paid; but first comes a message that nobody can read (not over HTTP)
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from own_servers import NoServer, own_server

from hipq import HipqError, transports


class Bank:
    def __init__(self, answers: str) -> None:
        self._answers = answers
        """The URL of a stream, or "http": then each request says where its answer goes."""
        self._told: Counter[str] = Counter()

    def take(self, key: str, headers: Mapping[str, str], request: Any) -> None:
        """Work on a request, beside others. The key is the same if it is sent again."""
        callback = headers.get("hipq-callback", "")
        threading.Thread(target=self._work, args=[key, request["card"], callback], daemon=True).start()

    def _work(self, key: str, card: str, callback: str) -> None:
        self._told[key] += 1
        if card == "slow":
            time.sleep(1)
        status = {"declined": "declined"}.get(card, "busy" if card == "busy" and self._told[key] == 1 else "paid")
        answer = {"reference": key, "status": status, "event": f"{key}/{self._told[key]}"}
        if card == "garbled" and not callback:
            self._send(key, b"\xffthis is no JSON", "")
        for _ in range(2 if card == "twice" else 1):
            self._send(key, answer, callback)
        print(f"{key}: asked by {card}, answered {status}", flush=True)

    def _send(self, key: str, answer: Any, callback: str) -> None:
        try:
            if callback:
                call_back(callback, answer)
            else:
                transports.send(self._answers, answer, key=key)
        except (HipqError, OSError) as error:
            print(f"{key}: could not be answered: {error}", flush=True)


def call_back(url: str, answer: dict[str, str]) -> None:
    """Bring an answer to the URL that the request came with."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": answer["event"]}
    if answer["status"] == "busy":
        headers["hipq-error"] = "true"
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(answer).encode(), headers), timeout=10).close()


# -- where requests come from -----------------------------------------------------------------------------------------
class Checkpoints(dict[str, str]):
    """How far this process has read, for streams that do not note that themselves: hipq keeps it in its database, and
    this bank, which has none, in memory."""

    def take(self, part: str) -> str | None:
        return self.setdefault(part, "")

    def keep(self, part: str, position: str) -> bool:
        self[part] = position
        return True

    def read(self) -> Mapping[str, str]:
        return dict(self)

    def leave(self, part: str) -> None: ...


def from_a_stream(url: str, bank: Bank) -> Iterator[None]:
    """Take what comes, and acknowledge it; one round at a time."""
    source = transports.source(transports.address(url), "bank", Checkpoints())
    try:
        while True:
            messages = source.receive(100, 0.5)
            for message in messages:
                key = unquote(message.headers.get("hipq-key", "")) or message.key  # Kinesis has no headers
                bank.take(key, message.headers, message.json)
            source.done(messages)
            yield
    finally:
        source.close()


class Handler(BaseHTTPRequestHandler):
    bank: Bank

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.bank.take(unquote(headers["hipq-key"]), headers, request)
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def over_http(server: ThreadingHTTPServer, bank: Bank) -> Iterator[None]:
    Handler.bank = bank
    server.timeout = 0.5
    while True:
        server.handle_request()
        yield


@contextmanager
def web() -> Iterator[ThreadingHTTPServer]:
    ThreadingHTTPServer.request_queue_size = 100
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        yield server


# -- running it -------------------------------------------------------------------------------------------------------
def stream(server: str, name: str) -> str:
    """The URL of a stream on this server: its name goes before the options."""
    where, mark, options = server.partition("?")
    return f"{where.rstrip('/')}/{name}{mark}{options}"


def shown(url: str) -> str:
    """As it was named, but for its password."""
    return f"'{re.sub(r':[^:/@]*@', ':...@', url)}'"


def main() -> int:
    parser = argparse.ArgumentParser(description="A pretend bank.")
    parser.add_argument("requests", help="where they come from: http, redis, ... or the URL of a server")
    parser.add_argument("answers", nargs="?", help="where they go; the same, if nothing is said")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with ExitStack() as open_now:
            return serve(open_now, options.requests, options.answers or options.requests)
    except NoServer as missing:
        print(f"there is no such server here: {missing}", file=sys.stderr)
    except HipqError as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        return 0
    return 1


def serve(open_now: ExitStack, requests: str, answers: str) -> int:
    servers = {
        word: word if word == "http" or "://" in word else open_now.enter_context(own_server(word))
        for word in dict.fromkeys((requests, answers))
    }
    bank = Bank("http" if answers == "http" else stream(servers[answers], "payments-in"))
    if requests == "http":
        website = open_now.enter_context(web())
        servers[requests] = f"http://127.0.0.1:{website.server_port}"
        rounds = over_http(website, bank)
    else:
        rounds = from_a_stream(stream(servers[requests], "payments-out"), bank)
    next(rounds)  # what is wrong with the server is said now
    words = " ".join(shown(servers[word]) if "://" in word else f"'{servers[word]}'" for word in servers)
    print(f"now, in another terminal: python examples/transports/buy.py {words}", flush=True)
    if ":...@" in words:
        print("(with the password in the place of the dots: it is not printed)", flush=True)
    for _ in rounds:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
