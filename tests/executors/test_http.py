"""Handlers that are a URL, against a real server that answers as it is told to."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hipq.sandbox import ContextJob, ContextPool, http
from tests.executors.running import handler, pool, run


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.seen.append((self.path, dict(self.headers), body))
        name, _, rest = self.path[1:].partition("/")
        getattr(self, f"_{name}")(rest, body)

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response_only(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _status(self, rest: str, body: bytes) -> None:
        self._answer(int(rest), b"" if rest in ("204", "304") else b"got " + body)

    def _redirect(self, rest: str, _: bytes) -> None:
        self._answer(int(rest), b"", Location="/status/200")

    def _informed(self, _: str, body: bytes) -> None:
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        self._answer(200, body)

    def _large(self, rest: str, _: bytes) -> None:
        self._answer(200, bytes(int(rest)))

    def _drip(self, _: str, __: bytes) -> None:
        server: Any = self.server
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not server.stop.wait(0.02):
            try:
                self.wfile.write(b"X: y\r\n")
            except OSError:
                return

    def _hang(self, _: str, __: bytes) -> None:
        server: Any = self.server
        server.stop.wait(60)
        self.close_connection = True  # else the client waits for an answer until its time is over

    def _bomb(self, _: str, __: bytes) -> None:
        import gzip

        self._answer(200, gzip.compress(bytes(50_000_000)), **{"Content-Encoding": "gzip"})

    def _garbage(self, _: str, __: bytes) -> None:
        self.wfile.write(b"\x00\xff no HTTP\r\n\r\n")
        self.close_connection = True

    def _half(self, _: str, __: bytes) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        self.close_connection = True

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as made:
        yield from serving(made)


def serving(made: Any) -> Iterator[Any]:
    made.daemon_threads = True
    made.seen, made.stop = [], threading.Event()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.stop.set()
        made.shutdown()
        thread.join()


@pytest.fixture
def local() -> Iterator[ContextPool]:
    with pool(http_allow=("127.0.0.1:*",)) as contexts:
        yield contexts


def url(server: Any, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
    return f"{scheme}://{host}:{server.server_port}/{path}"


def test_the_payload_is_posted_and_the_answer_is_the_result(server: Any, local: ContextPool) -> None:
    payload = bytes(range(256))
    given = handler("http", url(server, "status/201"), type="resize.v2")
    report = run(local, given, payload).only
    assert (report.status, report.data, report.error, report.crashed) == (201, b"got " + payload, "", False)
    ((path, headers, body),) = server.seen
    assert (path, body) == ("/status/201", payload)
    assert headers["Host"] == f"127.0.0.1:{server.server_port}"
    assert (headers["Hipq-Job-Id"], headers["Hipq-Job-Type"], headers["Hipq-Attempt"]) == (report.id, "resize.v2", "1")


@pytest.mark.parametrize("status", [200, 202, 204, 400, 404, 409, 500, 503])
def test_the_status_is_the_job_s(server: Any, local: ContextPool, status: int) -> None:
    assert run(local, handler("http", url(server, f"status/{status}"))).only.status == status


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_errors_and_not_followed(server: Any, local: ContextPool, status: int) -> None:
    report = run(local, handler("http", url(server, f"redirect/{status}"))).only
    assert report.status == 500
    assert report.error == f"it answered {status}, and redirects are not followed"
    assert len(server.seen) == 1


def test_hints_before_an_answer_are_no_answer(server: Any, local: ContextPool) -> None:
    assert run(local, handler("http", url(server, "informed")), b"x").only.data == b"x"


def test_an_answer_has_a_size(server: Any, local: ContextPool) -> None:
    assert len(run(local, handler("http", url(server, f"large/{16 << 20}"))).only.data) == 16 << 20
    report = run(local, handler("http", url(server, f"large/{(16 << 20) + 1}"))).only
    assert (report.status, report.data) == (413, b"")


def test_what_is_packed_stays_packed(server: Any, local: ContextPool) -> None:
    assert len(run(local, handler("http", url(server, "bomb"))).only.data) < 100_000


@pytest.mark.parametrize("path", ["drip", "hang"])
def test_an_answer_has_a_time_however_it_is_spent(server: Any, local: ContextPool, path: str) -> None:
    report = run(local, handler("http", url(server, path)), seconds=0.5).only
    assert (report.status, report.error) == (504, "no complete answer within 0.5 s")


@pytest.mark.parametrize("path", ["garbage", "half"])
def test_what_is_no_answer_is_an_error(server: Any, local: ContextPool, path: str) -> None:
    report = run(local, handler("http", url(server, path))).only
    assert (report.status, report.error) == (502, "what it answered is not HTTP, or it hung up in the middle")


def test_a_server_that_is_not_there_is_an_error(local: ContextPool) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens there, nor can anybody
        report = run(local, handler("http", f"http://127.0.0.1:{taken.getsockname()[1]}/")).only
    assert (report.status, report.error) == (502, "nobody listens there (connection refused)")


def test_many_are_posted_at_the_same_time_and_all_are_told(server: Any, local: ContextPool) -> None:
    ran = run(local, handler("http", url(server, "status/200")), *[str(n).encode() for n in range(50)])
    assert sorted(int(report.data.removeprefix(b"got ")) for report in ran.reports) == list(range(50))


def test_a_slow_one_does_not_hold_up_the_others(server: Any, local: ContextPool) -> None:
    order: list[str] = []

    def run_one(path: str) -> None:
        run(local, handler("http", url(server, path)))
        order.append(path)

    slow = threading.Thread(target=run_one, args=("hang",))
    slow.start()
    run_one("status/200")
    server.stop.set()
    slow.join()
    assert order == ["status/200", "hang"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0"])
def test_this_machine_is_not_reached_unless_it_is_named(server: Any, host: str) -> None:
    with pool() as contexts:
        report = run(contexts, handler("http", url(server, "status/200", host))).only
    assert report.status == 403
    assert "may not go" in report.error
    assert server.seen == []


def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_used(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def rebinding(host: str, _: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    monkeypatch.setattr(http, "resolve", rebinding)
    with pool(http_allow=("127.0.0.1:*",)) as contexts:
        report = run(contexts, handler("http", url(server, "status/200", "shop.example"))).only
    assert report.status == 200
    assert asked == ["shop.example"]
    assert server.seen[0][1]["Host"] == f"shop.example:{server.server_port}"


def test_a_name_with_one_address_that_is_refused_is_refused(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "resolve", lambda *_: ["93.184.216.34", "127.0.0.1"])
    with pool() as contexts:
        report = run(contexts, handler("http", url(server, "status/200", "shop.example"))).only
    assert (report.status, server.seen) == (403, [])


def test_the_certificate_must_be_that_of_the_name_in_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = certificate("shop.example", tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setattr(http, "resolve", lambda *_: ["127.0.0.1"])
    http._secure.cache_clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as made:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        names: list[str | None] = []
        context.sni_callback = lambda _, name, __: names.append(name)
        made.socket = context.wrap_socket(made.socket, server_side=True)
        for server in serving(made):
            with pool(http_allow=("127.0.0.1:*",)) as contexts:
                good = run(contexts, handler("http", url(server, "status/200", "shop.example", "https"))).only
                wrong = run(contexts, handler("http", url(server, "status/200", "bank.example", "https"))).only
    http._secure.cache_clear()
    assert (good.status, wrong.status) == (200, 502)
    assert "certificate" in wrong.error
    assert names == ["shop.example", "bank.example"]


def certificate(name: str, folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(plain + made.public_bytes(serialization.Encoding.PEM))
    return file


def test_abandoning_a_request_ends_it(server: Any, local: ContextPool) -> None:
    def on_start(task: ContextJob) -> None:
        threading.Timer(0.1, local.abandon, (task.id,)).start()

    report = run(local, handler("http", url(server, "hang")), on_start=on_start).only
    assert (report.status, report.error) == (509, "nobody wants it any more")


def test_closing_ends_requests_and_gives_the_rest_back(server: Any) -> None:
    ran, began = [], threading.Event()
    with pool(http_allow=("127.0.0.1:*",), http_together=2) as contexts:
        thread = threading.Thread(
            target=lambda: ran.append(
                run(contexts, handler("http", url(server, "hang")), *[b""] * 4, on_start=lambda _: began.set())
            )
        )
        thread.start()
        assert began.wait(60)
    thread.join()
    assert set(ran[0].statuses) == {509}
    assert len(ran[0].left) >= 2


def test_proxies_of_the_environment_are_not_asked(
    server: Any, local: ContextPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert run(local, handler("http", url(server, "status/200"))).only.status == 200
