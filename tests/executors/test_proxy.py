"""What code in a sandbox reaches when its handler names hosts: these, if the daemon allows them, and no others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hipq.sandbox import ContextPool
from hipq.sandbox.bubblewrap import why_no_sandbox
from hipq.sandbox.policy import Policy
from tests.executors.running import handler, pool, run

pytestmark = pytest.mark.skipif(bool(why_no_sandbox()), reason="there is no sandbox here")
ASKS = """
import urllib.error, urllib.request
try:
    with urllib.request.urlopen(payload, b"posted") as reply:
        return reply.status, reply.read()
except urllib.error.HTTPError as error:
    return 200, f"{error.code} {error.read().decode()}"
"""
RAW = """
import socket
with socket.create_connection(("127.0.0.1", 3128), 10) as link:
    link.sendall(payload.replace("+", "\\r\\n").encode())
    link.shutdown(socket.SHUT_WR)
    found = b""
    while part := link.recv(65536):
        found += part
return found
"""


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self._say(f"{self.path} {self.headers['host']} {body.decode()}")

    def do_GET(self) -> None:
        self._say(f"{self.path} {self.headers['proxy-authorization']}")

    def _say(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def walled() -> Iterator[ContextPool]:
    """A daemon that lets handlers go to this machine."""
    with pool(http_allow=("localhost:*", "127.0.0.0/8:*", "[::1]:*")) as contexts:
        yield contexts


def said(contexts: ContextPool, body: str, payload: str, *network: str, lang: str = "python") -> str:
    report = run(contexts, handler(lang, body, policy=Policy(network=network)), payload.encode()).only
    return report.data.decode() or f"{report.status} {report.error}"


def test_a_host_that_is_named_is_reached_and_no_other(walled: ContextPool, port: int) -> None:
    assert said(walled, ASKS, f"http://localhost:{port}/a?b=c", "localhost:*") == f"/a?b=c localhost:{port} posted"
    assert (
        said(walled, ASKS, f"http://127.0.0.1:{port}/", "localhost:*") == "403 127.0.0.1 is where handlers may not go\n"
    )
    assert said(walled, ASKS, f"http://127.0.0.1:{port}/", "127.0.0.0/8:*").startswith("/ 127.0.0.1")
    assert said(walled, ASKS, "http://nowhere.invalid/", "*.invalid").startswith("502 it cannot be reached")


def test_what_the_daemon_does_not_allow_no_handler_reaches(port: int) -> None:
    with pool() as contexts:  # every public address, and so not this machine
        refused = said(contexts, ASKS, f"http://localhost:{port}/", "localhost:*", "127.0.0.1:*")
        assert refused.startswith("403 localhost is at ")


def test_there_is_no_way_around_it(walled: ContextPool, port: int) -> None:
    around = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)"
    assert "Connection refused" in said(walled, around, "x", "localhost:*")
    lookup = "import socket\nreturn str(socket.getaddrinfo('localhost.localdomain.example', 80))"
    assert said(walled, lookup, "x", "localhost:*").startswith("500 ")


def test_without_hosts_there_is_no_proxy(walled: ContextPool) -> None:
    assert "Connection refused" in said(walled, RAW, "CONNECT localhost:1 HTTP/1.1++")


def test_connect_is_a_tunnel_to_the_one_place_it_names(walled: ContextPool, port: int) -> None:
    inner = "GET /inner HTTP/1.0++"
    assert said(walled, RAW, f"CONNECT localhost:{port} HTTP/1.1++{inner}", "localhost:*").endswith("/inner None")
    assert "403 Forbidden" in said(walled, RAW, f"CONNECT 127.0.0.2:{port} HTTP/1.1++{inner}", "localhost:*")


def test_a_host_without_a_port_stands_for_the_ports_of_the_web(walled: ContextPool, port: int) -> None:
    """A tunnel to any port of an allowed host would open the mail server and the database that are there, too."""
    inner = f"CONNECT localhost:{port} HTTP/1.1++GET /inner HTTP/1.0++"
    refused = said(walled, RAW, inner, "localhost")
    assert "403 Forbidden" in refused
    assert f"localhost is open to handlers, but not its port {port}: see --http-allow and network" in refused
    assert "403 Forbidden" in said(walled, RAW, inner, f"localhost:{port + 1}", "127.0.0.0/8", "public:*")
    assert said(walled, RAW, inner, "localhost", f"localhost:{port}").endswith("/inner None")
    for way in ("CONNECT localhost HTTP/1.1++", "CONNECT localhost:443 HTTP/1.1++", "GET http://localhost/ HTTP/1.1++"):
        assert "403" not in said(walled, RAW, way, "localhost"), "nobody listens there"
    with pool(http_allow=("localhost",)) as contexts:
        assert "403 Forbidden" in said(contexts, RAW, inner, "localhost:*"), "no more than the daemon allows"
        refused = said(contexts, f"http://localhost:{port}/", "it", lang="http")
        assert refused.startswith(f"403 localhost is open to handlers, but not its port {port}")


def test_a_connection_carries_one_request_so_that_the_next_one_is_judged_too(walled: ContextPool, port: int) -> None:
    two = f"GET http://localhost:{port}/one HTTP/1.1+Host: localhost+Connection: keep-alive+Proxy-Authorization: x++"
    two += "GET http://127.0.0.1/two HTTP/1.1+Host: 127.0.0.1++"
    reply = said(walled, RAW, two, "localhost:*")
    assert "/one None" in reply, "and what is for proxies only is not passed on"
    assert "/two" not in reply


@pytest.mark.parametrize(
    "request_",
    [
        "x", "GET / HTTP/1.1++", "GET ftp://localhost/ HTTP/1.1++", "CONNECT : HTTP/1.1++",
        "GET http://localhost:99999/ HTTP/1.1++",
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(walled: ContextPool, request_: str) -> None:
    assert "400 Bad Request" in said(walled, RAW, request_, "localhost:*")


def test_a_name_with_nul_in_it_does_not_pass_for_its_end(port: int) -> None:
    """C ends a name at NUL, so what is looked up would not be what was compared with the list."""
    with pool(http_allow=("*.shop.example", "localhost:*")) as contexts:
        for host in ("127.0.0.1\0.shop.example", "127.0.0.1\v.shop.example", "127.0.0.1 .shop.example"):
            raw = RAW.replace("payload", repr(f"CONNECT {host}:{port} HTTP/1.1++GET /inner HTTP/1.0++"))
            assert "400 Bad Request" in said(contexts, raw, "x", "*.shop.example"), host


def test_the_host_that_is_told_is_the_one_that_was_judged(walled: ContextPool, port: int) -> None:
    """One address serves many hosts: else a list of one of them would open all."""
    request = f"POST http://localhost:{port}/ HTTP/1.1+HOST: intern.example+Content-Length: 0++"
    assert said(walled, RAW, request, "localhost:*").endswith(f"/ localhost:{port} ")
    for line in ("Host : intern.example", "A: b\nHost: intern.example", "A: b+ Host: intern.example", "Host"):
        assert "400 Bad Request" in said(walled, RAW, request.replace("+HOST", f"+{line}+HOST"), "localhost:*"), line


def test_its_connections_end_with_its_context(walled: ContextPool, port: int) -> None:
    """A job that holds as many as it may does not keep the next context from having its own."""
    holds = """
import socket
links = [socket.create_connection(("127.0.0.1", 3128), 10) for _ in range(40)]
import os
os._exit(3)
"""
    assert said(walled, holds, "x", "localhost:*").startswith("503 ")
    assert said(walled, ASKS, f"http://localhost:{port}/", "localhost:*").startswith("/ localhost")


def test_programs_hear_of_it_by_their_environment(walled: ContextPool) -> None:
    body = 'status 200 "$http_proxy $HTTPS_PROXY"'
    assert said(walled, body, "x", "localhost:*", lang="shell") == "http://127.0.0.1:3128 http://127.0.0.1:3128"


def test_a_url_leads_only_where_both_the_daemon_and_the_handler_allow(walled: ContextPool, port: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    assert said(walled, url, "it", lang="http") == f"/ 127.0.0.1:{port} it"
    assert said(walled, url, "it", "127.0.0.1:*", lang="http") == f"/ 127.0.0.1:{port} it"
    assert said(walled, url, "it", "localhost:*", lang="http") == "403 127.0.0.1 is where handlers may not go"
