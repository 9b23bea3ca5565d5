"""An AWS for the tests: the one named, or moto's server, which speaks the same protocol and keeps all in memory."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

import boto3
import pytest

from tests.brokers.server import Server, shared_url

REGION: Final = "eu-west-1"
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "hipq-test",
    "AWS_SECRET_ACCESS_KEY": "hipq-test-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What tests set in the environment. moto takes any."""

# moto changes its lists from many threads without a lock: threads that only take turns when they wait do it no harm.
# With each message that is sent or received it asks of all others in the queue what time it is, three times: with 1,000
# of them that takes half a second, so it is told the time in a shorter way. With each look at a table it sorts all that
# is in it, and reads each value anew at each comparison: that is done once here. And it logs each request.
PROGRAM: Final = """
import logging, sys, time
from moto.server import main
from moto.dynamodb.models.table import Table
from moto.sqs import models
sys.setswitchinterval(0.2)
models.unix_time_millis = lambda: time.time() * 1000
def all_items(table):
    every = table.items.values()
    found = [item for items in every for item in items.values()] if table.range_key_attr else list(every)
    return sorted(found, key=lambda item: (item.hash_key.cast_value, item.range_key and item.range_key.cast_value))
def sorted_items(table, hash_keys, range_keys, items):
    names = table._generate_attr_to_sort_by(hash_keys, range_keys)
    return sorted(items, key=lambda item: [item.attrs[name].cast_value for name in names])
Table.all_items, Table.sorted_items = all_items, sorted_items
logging.getLogger("werkzeug").setLevel("WARNING")
main(sys.argv[1:])
"""


@cache
def aws_endpoint() -> str:
    """A server where queues and streams may be made."""
    return shared_url(OwnAws, "HIPQ_TEST_AWS_URL", 0)


@cache
def client(service: str, endpoint: str) -> Any:
    """A client of the library's own, to look at the server behind hipq's back."""
    session = boto3.session.Session(
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=REGION,
    )
    return session.client(service, endpoint_url=endpoint)


class OwnAws(Server):
    """What was in it is gone when it is stopped. `strict`: it asks who one is, and knows nobody."""

    name = "moto_server"
    url_form = "http://127.0.0.1:{port}"
    start_seconds = 60.0

    def __init__(self, *, strict: bool = False) -> None:
        if find_spec("moto") is None or find_spec("flask_cors") is None:
            pytest.skip("no AWS server here: pip install 'moto[server]', or set HIPQ_TEST_AWS_URL")
        self._strict = strict
        super().__init__()

    def command(self, port: int) -> Sequence[str]:
        return [sys.executable, "-c", PROGRAM, "-H", "127.0.0.1", "-p", str(port)]

    def environment(self, port: int) -> Mapping[str, str]:  # noqa: ARG002
        return {"INITIAL_NO_AUTH_ACTION_COUNT": "0"} if self._strict else {}

    @classmethod
    def answers(cls, port: int) -> bool:
        try:
            urlopen(f"http://127.0.0.1:{port}/moto-api/data.json", timeout=5).close()
        except OSError:  # of which urllib's errors are some
            return False
        return True


class FaultyAws:
    """Stands before a server and passes all on, but for what it is told to answer itself: the errors of AWS that moto
    never makes. What it says is spoken over the network like the real thing."""

    def __init__(self, endpoint: str) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """What was asked for, and with what."""
        self._answers: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(endpoint))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, what: str, status: int, body: dict[str, Any]) -> None:
        """Answer this the next time; status 0 = hang up without a word."""
        self._answers.setdefault(what, []).append((status, body))

    def fail(self, what: str, code: str, status: int = 400) -> None:
        self.answer(what, status, {"__type": code, "message": f"{code}, as ordered"})

    def count(self, what: str) -> int:
        return [name for name, _ in self.asked].count(what)

    def __enter__(self) -> FaultyAws:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self, endpoint: str) -> type[BaseHTTPRequestHandler]:
        asked, answers = self.asked, self._answers

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                what = self.headers["X-Amz-Target"].rpartition(".")[2]
                body = self.rfile.read(int(self.headers["Content-Length"]))
                asked.append((what, json.loads(body)))
                if not answers.get(what):
                    self._say(*_passed_on(endpoint, body, dict(self.headers)))
                    return
                status, said = answers[what].pop(0)
                if status:
                    self._say(status, json.dumps(said).encode())

            def _say(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("x-amzn-RequestId", str(uuid4()))  # as AWS always says
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        return Handler


def _passed_on(endpoint: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    try:
        with urlopen(Request(endpoint, body, headers), timeout=30) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()
