"""What RELIABILITY lists as bad input over HTTP: each is refused in one sentence, and the daemon goes on."""

from __future__ import annotations

import gzip
import json
import socket
import time
from urllib.parse import quote

import pytest

from hipq.daemon.http.request import Limits
from tests.daemon.api_serving import Daemon, Tenant, site

NAMES = ["%00", "..", "%2e%2e%2f", "a%2Fb", "a%20b", "a,b", "a%7Cb", "a%0Ab", "a%0D%0AX:%20y", quote("‮abc"), quote("é"),
         "a" * 201, "a" * 60_000, "%ff", "%", "%zz", "a%25", "a+b", "a~"]  # fmt: skip


@pytest.fixture(scope="module")
def acme() -> Tenant:
    return site().tenant()


def head(tenant: Tenant, *lines: str, path: str = "/{}/job/mail/add", method: str = "POST") -> bytes:
    first = f"{method} {path.replace('{}', tenant.name)} HTTP/1.1"
    return "\r\n".join([first, "Host: x", f"Authorization: Bearer {tenant.token}", *lines, "", ""]).encode()


def told(reply: bytes) -> tuple[int, dict[str, str]]:
    """Status and body of the first reply."""
    top, _, body = reply.partition(b"\r\n\r\n")
    said = json.loads(body.partition(b"HTTP/1.1")[0])
    assert set(said) in ({"error"}, {"ids"})
    return int(top.split()[1]), said


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:30])
@pytest.mark.parametrize("path", ["/{}/job/%s/add", "/{}/handler/get/%s", "/v1/{}/handlers/%s", "/%s/job/mail/add"])
def test_a_name_that_is_none_is_refused(acme: Tenant, path: str, name: str) -> None:
    got = acme("GET" if "handler" in path else "POST", path % name, None if "handler" in path else b"x")
    assert got.status in ((400, 404, 431) if path.startswith("/{}") else (404, 431, 400)), got
    assert got.error
    assert acme("GET", "/v1/{}/jobs").json["jobs"] == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip"])
def test_what_is_compressed_is_415_and_never_unpacked(acme: Tenant, encoding: str) -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    got = acme("POST", "/{}/job/mail/add", bomb, content_encoding=encoding)
    assert got.status == 415
    assert "without a Content-Encoding" in got.error


@pytest.mark.parametrize("encoding", ["gzip, chunked", "deflate,chunked", "GZIP, Chunked"])
def test_what_is_compressed_under_way_is_415_and_no_job(acme: Tenant, encoding: str) -> None:
    packed = gzip.compress(b"a job")
    body = b"%x\r\n" % len(packed) + packed + b"\r\n0\r\n\r\n"
    reply = acme.daemon.raw(head(acme, f"Transfer-Encoding: {encoding}") + body)
    status, said = told(reply)
    assert (status, "no Transfer-Encoding but chunked" in said["error"]) == (415, True)
    assert acme("GET", "/v1/{}/jobs").json["jobs"] == []


def test_a_body_may_have_its_size_and_not_a_byte_more(acme: Tenant) -> None:
    for path in ("/{}/job/mail/add", "/v1/{}/jobs", "/{}/handler/add/x", "/v1/{}/answers/x/k"):
        reply = acme.daemon.raw(head(acme, f"Content-Length: {(32 << 20) + 1}", "Connection: close", path=path))
        status, said = told(reply)
        assert (status, "33,554,432 bytes" in said["error"]) == (413, True)
    reply = acme.daemon.raw(head(acme, "Content-Length: 99999999999999999", "Connection: close"))
    assert told(reply)[0] == 413


def test_a_chunked_body_is_cut_off_at_the_size(acme: Tenant) -> None:
    with acme.daemon.connect() as link:
        link.sendall(head(acme, "Transfer-Encoding: chunked", "Connection: close"))
        chunk = b"%x\r\n" % (1 << 20) + b"x" * (1 << 20) + b"\r\n"
        try:
            for _ in range(40):
                link.sendall(chunk)
        except OSError:
            pass  # it has hung up
        reply = link.recv(65536)
    assert told(reply)[0] == 413


def test_too_many_jobs_in_one_request_are_413(acme: Tenant) -> None:
    got = acme("POST", "/{}/job/mail/add", b"\n" * 100_001)
    assert got.status == 413
    assert "100,000 jobs" in got.error


@pytest.mark.parametrize("path", ["/{}/job/mail/add", "/v1/{}/jobs"])
@pytest.mark.parametrize("value", [b"1", b"[]"])
def test_json_that_would_take_hundreds_of_megabytes_to_read_is_413(acme: Tenant, path: str, value: bytes) -> None:
    body = b'{"type":"mail","data":[' + (value + b",") * 1_000_001 + value + b"]}"
    got = acme("POST", path, body, content_type="application/json")
    assert (got.status, "1,000,000 commas" in got.error) == (413, True)


def test_too_many_jobs_in_one_array_are_413_before_anything_is_done_with_them(acme: Tenant) -> None:
    began = time.monotonic()
    got = acme("POST", "/v1/{}/jobs", b"[" + b",".join([b'{"type":"mail"}'] * 100_001) + b"]")
    assert (got.status, "100,000 jobs" in got.error) == (413, True)
    assert time.monotonic() - began < 20, "it kept everybody waiting for a minute"


def test_a_payload_that_no_store_takes_is_refused(acme: Tenant) -> None:
    got = acme("POST", "/{}/job/mail/add", b"x" * ((16 << 20) + 1))
    assert got.status == 400
    assert "too large" in got.error


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 1", "Content-Length: 2"],
        ["Content-Length: 1", "Content-Length: 1"],
        ["Content-Length: 1", "Transfer-Encoding: chunked"],
        [f"h{number}: x" for number in range(10_000)],
    ],
    ids=["two that differ", "two alike", "and chunked", "10,000 headers"],
)
def test_heads_that_are_no_good_are_refused(acme: Tenant, lines: list[str]) -> None:
    reply = acme.daemon.raw(head(acme, *lines) + b"x")
    if reply:  # who still sends may not hear it
        assert told(reply)[0] in (400, 431)
    assert acme("GET", "/v1/{}/jobs").json["jobs"] == []


def test_the_body_of_a_refused_request_is_not_taken_for_the_next(acme: Tenant) -> None:
    hidden = head(acme, "Content-Length: 6") + b"hidden"
    refused = head(acme, f"Content-Length: {len(hidden)}", path="/other/job/mail/add") + hidden
    last = head(acme, "Connection: close", path="/v1/{}/jobs", method="GET")
    reply = acme.daemon.raw(refused + last)
    assert reply.count(b"HTTP/1.1 ") == 2
    assert told(reply)[0] == 404
    assert b'{"jobs":[],"next":null}' in reply


def test_who_asks_first_hears_no_before_sending(acme: Tenant) -> None:
    with acme.daemon.connect() as link:
        link.sendall(head(acme, "Content-Length: 99999999", "Expect: 100-continue"))
        assert link.recv(4096).startswith(b"HTTP/1.1 413 ")
    with acme.daemon.connect() as link:
        link.sendall(head(acme, "Content-Length: 1", "Expect: 100-continue", path="/other/job/mail/add"))
        assert link.recv(4096).startswith(b"HTTP/1.1 404 ")


def test_a_client_that_goes_away_in_the_middle_leaves_nothing(acme: Tenant) -> None:
    for _ in range(20):
        with acme.daemon.connect() as link:
            link.sendall(head(acme, "Content-Length: 100") + b"half")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # it is reset
    assert acme("GET", "/v1/{}/jobs").json["jobs"] == []
    assert "Traceback" not in acme.daemon.log


def test_a_client_that_shuts_down_its_side_gets_its_reply() -> None:
    """A small post is taken at once, a larger one the usual way; a half one is nobody's."""
    acme = site().tenant()
    for size, replies in ((5, b"HTTP/1.1 200 "), (2 << 20, b"HTTP/1.1 200 ")):
        with acme.daemon.connect() as link:
            link.sendall(head(acme, f"Content-Length: {size}") + b"x" * size)
            link.shutdown(socket.SHUT_WR)
            found = b""
            while part := link.recv(65536):
                found += part
        assert found.startswith(replies), found[:200]
        assert found.count(b'"ids"') == 1
    with acme.daemon.connect() as link:
        link.sendall(head(acme, "Content-Length: 5") + b"xx")
        link.shutdown(socket.SHUT_WR)
        assert link.recv(65536) == b""
    with acme.daemon.connect() as link:  # and one that closes after its reply
        link.sendall(head(acme, "Content-Length: 1") + b"x")
        assert link.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert "Traceback" not in acme.daemon.log


def test_nothing_of_all_this_was_a_surprise(acme: Tenant) -> None:
    """Last: the log of the daemon that had to listen to it."""
    assert acme.daemon.call("GET", "/health").json == {"status": "ok"}
    log = acme.daemon.log
    assert "Traceback" not in log
    assert "went wrong" not in log
    assert not [line for line in log.splitlines() if not line.isprintable()]


def test_without_tokens_nothing_is_taken_from_a_page_in_a_browser() -> None:
    daemon: Daemon = site().daemon("--no-tokens")
    assert daemon.call("POST", "/anybody/job/mail/add", b"x").status == 200
    assert daemon.call("POST", "/a-b/job/mail/add", b"x").status == 404
    got = daemon.call("POST", "/anybody/job/mail/add", b"x", origin="https://evil.example")
    assert got.status == 403
    assert got.error
    # A page whose name leads to this machine: its browser sends that name as Host, and no Origin with a GET.
    for host in ("evil.example", f"evil.example:{daemon.port}", "127.0.0.1.evil.example", "localhost.evil.example", ""):
        got = daemon.call("GET", "/v1/anybody/jobs", host=host)
        assert (got.status, "Host" in got.error) == (403, True), host
        assert daemon.call("POST", "/anybody/job/mail/add", b"x", host=host).status == 403, host
        assert daemon.call("GET", "/v1/whoami", host=host).status == 403, host  # which is what the page of /docs asks
    for host in ("localhost", f"LOCALHOST:{daemon.port}", "127.0.0.1", "127.1.2.3:1", f"[::1]:{daemon.port}"):
        assert daemon.call("GET", "/v1/anybody/jobs", host=host).status == 200, host
    assert daemon.stop() == 0


def test_bodies_and_times_have_the_limits_that_were_asked_for() -> None:
    daemon: Daemon = site().daemon("--no-tokens", "--body-size", "1", "--body-timeout", "1", "--head-timeout", "2")
    assert daemon.call("POST", "/anybody/job/mail/add", b"x" * (1 << 20)).status == 200
    got = daemon.call("POST", "/anybody/job/mail/add", b"x" * ((1 << 20) + 1))
    assert (got.status, "1,048,576 bytes" in got.error) == (413, True)
    slow = daemon.raw(b"POST /anybody/job/mail/add HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")
    assert b" 408 " in slow
    assert b"longer than 1 seconds" in slow
    slow = daemon.raw(b"POST /anybody/job/mail/add HTTP/1.1\r\nHost: loc")
    assert b" 408 " in slow
    assert b"longer than 2 seconds" in slow
    assert daemon.stop() == 0


def test_a_larger_body_than_usual_fits_if_that_was_asked_for() -> None:
    limits = Limits(body=200 << 20, body_seconds=1, head_seconds=1)
    assert limits.held // limits.share >= 400 << 20, "or one could never be held"
    assert Limits(body=32 << 20, body_seconds=30, head_seconds=15) == Limits()
