"""What is sent, and what is refused before anything is sent."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest

from hipq import transports
from hipq.errors import Invalid
from hipq.transports import http
from hipq.transports.base import Outgoing
from tests.transports.http.servers import SECRETS, web


def test_a_request_arrives_byte_for_byte_and_so_does_its_reply() -> None:
    with web() as server:
        server.replies["/a"] = (201, bytes(range(256)), {"X-Ref": "r", "Retry-After": "5"})
        body = bytes(range(256)) * 1000
        reply = http.request("PUT", f"{server.url}/a?b=%20c", body, {"X-One": "ä", "Content-Type": "text/x"}, 5)
    assert (reply.status, reply.body) == (201, bytes(range(256)))
    assert reply.headers["x-ref"] == "r"
    assert reply.headers["retry-after"] == "5"
    ((method, path, headers, got),) = server.got
    assert (method, path, got) == ("PUT", "/a?b=%20c", body)
    assert headers["x-one"] == "ä"
    assert headers["content-type"] == "text/x"
    assert headers["host"] == server.url[7:]
    assert headers["user-agent"] == "hipq"


def test_a_sender_posts_json() -> None:
    with web() as server:
        reply = http.sender(f"{server.url}/in").send(Outgoing(b'{"a":1}', "k", {"hipq-key": "k"}), 5)
        http.sender(f"{server.url}/in").send(Outgoing(b"<a/>", "k", {"Content-Type": "text/xml"}), 5)
    assert reply.body == b'ok {"a":1}'
    (method, path, headers, body), (_, _, others, _) = server.got
    assert (method, path, body) == ("POST", "/in", b'{"a":1}')
    assert headers["content-type"] == "application/json"
    assert headers["hipq-key"] == "k"
    assert others["content-type"] == "text/xml"


def test_it_is_the_transport_of_http_urls() -> None:
    with web() as server:
        reply = transports.send(f"{server.url}/x", {"a": 1}, headers={"x-a": "b"})
        assert reply is not None
        assert reply.body == b'ok {"a":1}'
    http.sender("https://user:password@server:8443/path?a=b")


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "POST", "PATCH"])
def test_without_a_body_there_is_none(method: str) -> None:
    with web() as server:
        assert http.request(method, server.url).status == 200
        assert http.request(method, server.url).status == 200
        assert server.connections == 1
    assert [(one[0], one[1], one[3]) for one in server.got] == [(method, "/", b"")] * 2
    assert server.got[0][2].get("content-length") == ("0" if method in ("POST", "PATCH") else None)


@pytest.mark.parametrize("location", ["https://elsewhere.invalid/", "http://[broken", "/b"])
def test_whatever_the_status_it_is_a_reply_and_no_redirect_is_followed(location: str) -> None:
    with web() as server:
        for status in (204, 301, 302, 307, 404, 429, 500, 599):
            server.replies["/a"] = (status, b"" if status == 204 else b"body", {"Location": location})
            reply = http.request("POST", f"{server.url}/a", b"x")
            assert (reply.status, reply.headers["location"]) == (status, location)
        assert len(server.got) == 8


def test_user_and_password_of_a_url_are_sent_as_its_login() -> None:
    with web() as server:
        http.request("GET", server.url.replace("//", "//Aladdin:open%20sesame@"))
        http.request("GET", server.url.replace("//", "//Aladdin:x@"), headers={"Authorization": "Bearer t"})
        http.request("GET", server.url)
    logins = [headers.get("authorization") for _, _, headers, _ in server.got]
    assert logins == ["Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Bearer t", None]


def test_one_jobs_cookies_are_not_sent_with_anothers_request() -> None:
    with web() as server:
        server.replies["/login"] = (200, b"", {"Set-Cookie": "session=mine; Path=/"})
        http.request("POST", f"{server.url}/login")
        http.request("POST", f"{server.url}/other")
    assert "cookie" not in server.got[1][2]


def test_nothing_of_a_url_or_a_header_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with web() as server, caplog.at_level(logging.DEBUG):
        url = f"http://{SECRETS.format(server.url[7:])}"
        http.request("POST", url, b"hush5", {"x-token": "hush4"})
        assert "hush" not in repr(http.sender(url)) + repr(vars(http.sender(url)))
    assert "hush" not in caplog.text


# -- refused -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "url",
    [
        "", "x", "/path", "ftp://x/", "http://", "http:///a", "http:x", "http://:80/", "http://a b/", "http://x:port/",
        "http://x:0/", "http://x:70000/", "http://x:-1/", "http://[::1/", "http://[nonsense]/", "http://1.2.3.999/", "http://a..b/",
        "http://-/", f"http://{'a' * 64}.com/", "http://x/\r\nHost: y", "http://x\x00/", "http://a\\b/", "http://{key}/",
        "http://x/" + "a" * 70_000, None, 5, b"http://x/", "http://x/\ud800",
    ],
)  # fmt: skip
def test_a_bad_url_is_invalid(url: Any) -> None:
    for call in (http.sender, lambda url: http.request("GET", url)):
        with pytest.raises(Invalid, match="it looks like https://server/path"):
            call(url)


def test_a_bad_url_shows_no_secret() -> None:
    for host in ("x:hush5port", "a b", ""):
        with pytest.raises(Invalid) as error:
            http.sender(f"http://{SECRETS.format(host)}")
        assert "hush" not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize(
    "url", ["http://x", "https://[::1]:80/", "http://bücher.example/ä?ö", "http://a_b.c./", "HTTP://X/"]
)
def test_a_good_url_is_not(url: str) -> None:
    http.sender(url)


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"a b": "x"}, "'a b' is no header"),
        ({"": "x"}, "'' is no header"),
        ({"a\r\nb": "x"}, "is no header"),
        ({"Content-Length": "5"}, "'Content-Length' is no header that a request can be given"),
        ({"transfer-encoding": "chunked"}, "is no header"),
        ({"x-a": "hush\r\nx-b: 1"}, "the header x-a must be text without line breaks"),
        ({"x-a": "hush\x00"}, "the header x-a must be text without line breaks"),
        ({"x-a": 5}, "the header x-a must be text"),
        ({"x-a": "hush→"}, "the header x-a contains characters outside Latin-1"),
    ],
)
def test_a_bad_header_is_invalid_and_not_shown(headers: Any, sentence: str) -> None:
    with web() as server:
        with pytest.raises(Invalid, match=sentence) as error:
            http.request("POST", server.url, b"", headers)
        assert "hush" not in str(error.value)
        assert server.connections == 0


@pytest.mark.parametrize("method", ["", "get", "GET /\r\n", "CONNECT", "G T", None])
def test_a_bad_method_is_invalid(method: Any) -> None:
    with pytest.raises(Invalid, match="the method of a request must be a word like GET or POST"):
        http.request(method, "http://x/")
