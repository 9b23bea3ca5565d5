"""The only way out of a sandbox: an HTTP proxy, run by the daemon, that leads to allowed hosts and nowhere else.

The sandbox has no network but its own loopback. `launch.py` listens there and hands that socket to the daemon, which
accepts its connections: so no other process is needed inside, and nothing inside could get around this one. Names are
resolved here, all addresses of a name are checked, and one of those is connected to.
"""

from __future__ import annotations

import re
import select
import socket
import threading
from contextlib import suppress
from typing import Final
from urllib.parse import SplitResult, urlsplit

from hipq.errors import Invalid
from hipq.sandbox.addresses import Allowed, resolve

PORT: Final = 3128
VARIABLES: Final = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{PORT}"),
    "NODE_USE_ENV_PROXY": "1",
}
"""How programs inside hear of it."""
MOST: Final = 32
"""Connections of one context at a time; more wait until one ends."""
_MOST_HEAD: Final = 32 << 10
_SECONDS: Final = 30.0
"""Seconds in which the head of a request must come, and in which a connection must be made."""
_QUIET: Final = 300.0
"""Seconds after which a connection on which nothing moves is closed."""
_BLOCK: Final = 1 << 16
_OWN: Final = (b"host:", b"connection:", b"proxy-", b"keep-alive:")
"""Headers of the proxy's own: what a request says there is not passed on."""
_LINE: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*")


class _Forbidden(Invalid):
    """This host is not allowed."""


class ForwardProxy:
    """The proxy of one context, in threads of its own."""

    def __init__(self, listener: socket.socket, allowed: Allowed) -> None:
        self._listener, self._allowed = listener, allowed
        self._room = threading.BoundedSemaphore(MOST)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, name="hipq-proxy", daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            self._closed = True
            for one in (self._listener, *self._open):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for it, who closes it

    def _accept(self) -> None:
        with self._listener:
            while True:
                self._room.acquire()
                try:
                    connection, _ = self._listener.accept()
                except OSError:
                    return  # it was closed
                threading.Thread(target=self._serve, args=(connection,), name="hipq-proxy", daemon=True).start()

    def _serve(self, inside: socket.socket) -> None:
        try:
            with inside:
                if self._keep(inside):
                    self._answer(inside)
        except OSError:
            pass  # one of the two has gone
        finally:
            self._forget(inside)
            self._room.release()

    def _answer(self, inside: socket.socket) -> None:
        inside.settimeout(_SECONDS)
        try:
            head, rest = _head(inside)
            target, sent = _understood(head)
            outside = self._dial(target)
        except Invalid as error:
            inside.sendall(_refusal(403 if isinstance(error, _Forbidden) else 400, str(error)))
        except OSError as error:
            inside.sendall(_refusal(502, f"it cannot be reached: {error.strerror or error}"))
        else:
            with outside:
                try:
                    if self._keep(outside):
                        if sent:
                            outside.sendall(sent + rest)
                        else:
                            inside.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                            outside.sendall(rest)
                        _pump(inside, outside)
                finally:
                    self._forget(outside)

    def _dial(self, target: SplitResult) -> socket.socket:
        host, port = target.hostname or "", target.port or (80 if target.scheme else 443)  # CONNECT has no scheme
        found = resolve(host, port)
        try:
            addresses = self._allowed.pick(host, found, port)
        except Invalid as error:
            raise _Forbidden(str(error)) from None
        for address in addresses[:-1]:
            with suppress(OSError):
                return socket.create_connection((address, port), _SECONDS)
        return socket.create_connection((addresses[-1], port), _SECONDS)

    def _keep(self, connection: socket.socket) -> bool:
        """Whether it may go on; then `close` ends it."""
        with self._lock:
            self._open.add(connection)
            return not self._closed

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)


def _head(connection: socket.socket) -> tuple[bytes, bytes]:
    """The head of a request, and what came behind it."""
    found = b""
    while b"\r\n\r\n" not in found:
        block = connection.recv(_BLOCK)
        if not block:
            raise Invalid("the request has no end")
        found += block
        if len(found) > _MOST_HEAD:
            raise Invalid(f"the head of a request may have {_MOST_HEAD:,} bytes")
    head, _, rest = found.partition(b"\r\n\r\n")
    return head, rest


def _understood(head: bytes) -> tuple[SplitResult, bytes]:
    """Where a request leads, and what is to be sent there: nothing for CONNECT, after which its sender talks itself."""
    lines = head.split(b"\r\n")
    try:
        method, url, version = lines[0].decode("ascii").split(" ")
        target = urlsplit(f"//{url}" if method == "CONNECT" else url)
        _ = target.port
    except ValueError:
        raise Invalid("this is no request of a proxy") from None
    if not target.hostname or (method != "CONNECT" and target.scheme != "http"):
        raise Invalid("a proxy takes CONNECT host:port, or a URL that begins with http://")
    if method == "CONNECT":
        return target, b""
    if not version.startswith("HTTP/1.") or not all(map(_LINE.fullmatch, lines[1:])):
        raise Invalid("a line of the head can be read in two ways")  # here, and by who is behind this proxy
    path = f"{target.path or '/'}{'?' + target.query if target.query else ''}"
    # One request for each connection: the next one may be meant for another host. And to the host that was judged, not
    # to another one that is served at the same address.
    kept = [line for line in lines[1:] if not line.lower().startswith(_OWN)]
    host = b"Host: " + target.netloc.rpartition("@")[2].encode()
    return target, b"\r\n".join([f"{method} {path} {version}".encode(), host, *kept, b"Connection: close", b"", b""])


def _refusal(status: int, why: str) -> bytes:
    text = f"{why}\n".encode("utf-8", "replace")
    reason = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}"
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + text


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Pass on whatever either says, until both have ended or nothing moves any more."""
    towards = {one: other, other: one}
    for connection in towards:
        connection.settimeout(_QUIET)
    poll, by_number = select.poll(), {connection.fileno(): connection for connection in towards}
    for number in by_number:
        poll.register(number, select.POLLIN)
    left = len(towards)
    while left and (ready := poll.poll(_QUIET * 1000)):
        for number, _ in ready:
            block = by_number[number].recv(_BLOCK)
            if block:
                towards[by_number[number]].sendall(block)
            else:
                poll.unregister(number)
                left -= 1
                with suppress(OSError):
                    towards[by_number[number]].shutdown(socket.SHUT_WR)
