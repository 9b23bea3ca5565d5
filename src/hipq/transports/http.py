"""HTTP: a request, and the reply to it. One pool of connections in each process serves all URLs.

This is httpx2 without its `Client`: its URLs and its certificates, on the connection pool it is built on. The client
remembers cookies, so one job's session would be sent with another's request; it logs whole URLs; and its time-outs are
for each single read, so a server that sends a byte now and then could hold a thread for good.
"""

from __future__ import annotations

import os
import re
import threading
import time
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Final
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from hipq.errors import Invalid, TransportUnavailable
from hipq.transports.base import HEADER_NAME, Outgoing, Reply, key_in
from hipq.transports.http_network import HttpNetwork, why
from hipq.transports.recording import recorder

CONNECTIONS: Final = 100
"""Connections of one process at a time; further requests wait."""
IDLE_SECONDS: Final = 4.0
"""Less than the five seconds after which Node and uvicorn hang up: a request sent at that moment is lost, and nobody
knows."""
LARGEST_REPLY: Final = 1_000_000

_METHOD: Final = re.compile(r"(?!CONNECT$)[A-Z]{1,20}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HOST: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_.])?|[0-9a-f:.]+")
_OURS: Final = ("content-length", "transfer-encoding")
"""Headers that say where a request ends: a second opinion on that lets one request smuggle in another."""

_pools: dict[str, httpcore2.ConnectionPool] = {}
"""The connection pools, by the proxy they go through; "" = none."""
_proxies: dict[str, str] | None = None
_lock = threading.Lock()


class HttpTarget:
    """A URL that HTTP understands."""

    def __init__(self, url: str) -> None:
        try:
            self.url = httpx2.URL(url)
            scheme, host, port = self.url.scheme, self.url.raw_host.decode(), self.url.port
            host.encode("idna")  # the resolver will do the same
        except (httpx2.InvalidURL, TypeError, UnicodeError, ValueError):
            raise Invalid("this is no URL that HTTP understands; it looks like https://server/path") from None
        if scheme not in ("http", "https") or not _HOST.fullmatch(host) or not 0 < (port or 1) < 65_536 or port == 0:
            raise Invalid(f"this is no URL of HTTP: {scheme!r:.20} to {host!r:.60}; it looks like https://server/path")
        self.given = url

    def __repr__(self) -> str:
        """The URL for people: passwords are in the user's part of a URL, tokens in its query and even in its path."""
        return f"{self.url.scheme}://{self.url.netloc.decode()}"


class HttpSender:
    """POSTs messages to one URL. It is cheap, because all senders share the connections."""

    def __init__(self, url: str) -> None:
        self._target = HttpTarget(url)

    def send(self, message: Outgoing, seconds: float) -> Reply:
        headers = {"content-type": "application/json", **{name.lower(): v for name, v in message.headers.items()}}
        return _exchange("POST", self._target, message.body, headers, seconds, LARGEST_REPLY)

    def close(self) -> None:
        """Nothing to close: a sender has no connection of its own."""

    def __repr__(self) -> str:
        return f"<HttpSender {self._target}>"


sender = HttpSender


def request(
    method: str,
    url: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    seconds: float = 30.0,
    *,
    largest: int = LARGEST_REPLY,
) -> Reply:
    """Send a request once and wait for the reply, `seconds` at most in all.

    Whatever the status, the reply is returned, and redirects are not followed. A successful reply (2xx) larger than
    `largest` bytes is an error; other replies are truncated.
    """
    return _exchange(method, HttpTarget(url), body, headers or {}, seconds, largest)


def close() -> None:
    """Close the unused connections; the next request opens new ones."""
    with _lock:
        pools = list(_pools.values())
        _pools.clear()
    for pool in pools:
        pool.close()


# -- one exchange -----------------------------------------------------------------------------------------------------
def _exchange(
    method: str, target: HttpTarget, body: bytes, headers: Mapping[str, str], seconds: float, largest: int
) -> Reply:
    if not isinstance(method, str) or not _METHOD.fullmatch(method):
        raise Invalid(f"the method of a request must be a word like GET or POST, not {method!r:.40}")
    lines = _lines(target.url, headers)
    if taker := recorder():
        reply = taker.record(method, target.given, Outgoing(body, key_in(headers), headers))
        assert reply is not None
        return reply
    proxy = _proxy(target.url)
    where = f"{target} (through a proxy)" if proxy else str(target)
    content = body if body or method not in ("GET", "HEAD", "OPTIONS", "DELETE") else None
    end = time.monotonic() + seconds  # HttpNetwork takes a time-out as the moment at which all must be over
    limits = {"pool": max(seconds, 0.001), "connect": end, "read": end, "write": end}
    try:
        extensions = {"timeout": limits}
        with _pool(proxy).stream(
            method, _core(target.url), headers=lines, content=content, extensions=extensions
        ) as answer:
            return _reply(answer, where, largest)
    except httpcore2.LocalProtocolError:
        raise Invalid(f"{where}: HTTP does not allow such a request") from None
    except (*HttpNetwork.ERRORS, zlib.error) as error:
        raise TransportUnavailable(f"{where}: {why(error, seconds)}") from None


def _reply(answer: httpcore2.Response, where: str, largest: int) -> Reply:
    headers: dict[str, str] = {}
    for raw, value in answer.headers:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "", "gzip", "x-gzip"):
        raise TransportUnavailable(f"{where}: its reply is compressed as {coding!r:.40}, which nobody asked for")
    body, whole = _body(answer.iter_stream(), largest, gzip="gzip" in coding)
    if not whole and 200 <= answer.status < 300:
        raise TransportUnavailable(f"{where}: its reply is larger than {largest:,} bytes")
    return Reply(answer.status, body, headers)


def _body(chunks: Iterable[bytes], largest: int, *, gzip: bool) -> tuple[bytes, bool]:
    """The first `largest` bytes of a body, and whether that is all. At most one byte more is unpacked."""
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16) if gzip else None
    body, packed = bytearray(), False
    for chunk in chunks:
        packed = packed or bool(chunk)
        body += unpack.decompress(chunk, largest + 1 - len(body)) if unpack else chunk
        if len(body) > largest:
            return bytes(body[:largest]), False
    if unpack and packed and not unpack.eof:
        raise zlib.error("incomplete")
    return bytes(body), True


# -- what a request is made of ----------------------------------------------------------------------------------------
def _lines(url: httpx2.URL, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers as they are sent. Values are checked but never shown: they may contain tokens."""
    every = {b"host": url.netloc, b"user-agent": b"hipq", b"accept": b"*/*", b"accept-encoding": b"gzip"}
    if url.userinfo:
        every[b"authorization"] = b"Basic " + b64encode(f"{url.username}:{url.password}".encode())
    for name, value in headers.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
            raise Invalid(f"{name!r:.60} is no header that a request can be given")
        if not isinstance(value, str) or _CONTROL.search(value):
            raise Invalid(f"the header {name} must be text without line breaks and other control characters")
        try:
            every[name.lower().encode()] = value.strip(" \t").encode("latin-1")
        except UnicodeEncodeError:
            raise Invalid(f"the header {name} contains characters outside Latin-1, which is all HTTP has") from None
    return list(every.items())


def _core(url: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


# -- the pools --------------------------------------------------------------------------------------------------------
def _pool(proxy: str) -> httpcore2.ConnectionPool:
    found = _pools.get(proxy)
    if found is not None:
        return found
    with _lock:
        if proxy not in _pools:
            _pools[proxy] = httpcore2.ConnectionPool(
                ssl_context=httpx2.create_ssl_context(),
                proxy=_through(proxy) if proxy else None,
                max_connections=CONNECTIONS,
                max_keepalive_connections=CONNECTIONS,
                keepalive_expiry=IDLE_SECONDS,
                retries=0,  # a request is sent at most once
                network_backend=HttpNetwork(),
            )
        return _pools[proxy]


def _proxy(url: httpx2.URL) -> str:
    """The proxy that $HTTPS_PROXY and its like name for this URL; "" = none."""
    global _proxies
    if _proxies is None:
        _proxies = getproxies()
    found = _proxies.get(url.scheme) or _proxies.get("all") or ""
    return "" if not found or proxy_bypass(url.raw_host.decode()) else found


def _through(proxy: str) -> httpcore2.Proxy:
    try:
        parts = httpx2.Proxy(proxy if "://" in proxy else f"http://{proxy}")
        url = _core(parts.url)
    except (httpx2.InvalidURL, ValueError):
        raise Invalid("the proxy that $HTTPS_PROXY or one of its like names is no URL of a proxy") from None
    if parts.url.scheme.startswith("socks") and not find_spec("socksio"):
        raise Invalid("the proxy that $ALL_PROXY or one of its like names needs socksio: pip install 'httpx2[socks]'")
    return httpcore2.Proxy(url, auth=parts.raw_auth)


def _forget() -> None:
    """Forget the pools in a forked child: their connections belong to the parent. No lock is taken, because a thread
    of the parent may hold it."""
    global _lock, _proxies
    _lock, _proxies = threading.Lock(), None
    pools = list(_pools.values())
    _pools.clear()
    for pool in pools:
        for connection in pool.connections:
            connection.close()


os.register_at_fork(after_in_child=_forget)
