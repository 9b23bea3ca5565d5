"""Connections with a deadline: a time-out here is the moment when the whole exchange must be over.

httpcore2's pool passes the request's time-out on to each step. The library's own connections grant it to every single
read and write, so a server that sends a byte now and then is never late; here each step gets the time that is left.
"""

from __future__ import annotations

import socket
import ssl
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import httpcore2

PIECE: Final = 64 << 10
"""Bytes written at a time."""


def _left(end: float | None, late: type[Exception] = httpcore2.ReadTimeout) -> float:
    left = (end or 0.0) - time.monotonic()
    if left <= 0:
        raise late
    return left


class HttpStream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE):
            self._inner.write(buffer[start : start + PIECE] if len(buffer) > PIECE else buffer, _left(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> HttpStream:
        try:
            left = _left(timeout, httpcore2.ConnectTimeout)
        except httpcore2.ConnectTimeout:
            self.close()
            raise
        return HttpStream(self._inner.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def close(self) -> None:
        self._inner.close()


class HttpNetwork(httpcore2.NetworkBackend):
    ERRORS: Final = (
        httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError,
        httpcore2.UnsupportedProtocol, OSError,
    )  # fmt: skip
    """The errors that an exchange may raise."""

    def __init__(self) -> None:
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> HttpStream:
        """Connect to the first of the host's addresses that answers; each gets its share of the time. The time to
        look the addresses up is up to the system's resolver, which cannot be interrupted."""
        every = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys(str(where[0]) for *_, where in every))
        for number, one in enumerate(found, 1):
            share = _left(timeout, httpcore2.ConnectTimeout) / (len(found) - number + 1)
            try:
                return HttpStream(self._inner.connect_tcp(one, port, share, local_address, socket_options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if number == len(found):
                    raise
        raise socket.gaierror(socket.EAI_NONAME, "it has no address")


_SAID: Final[Sequence[tuple[type[BaseException], str, str]]] = (
    (httpcore2.PoolTimeout, "", "all connections have been in use for {seconds:g} s"),
    (httpcore2.ConnectTimeout, "", "no connection within {seconds:g} s"),
    (httpcore2.TimeoutException, "",
     "no complete reply within {seconds:g} s; whether it has the request is not known"),
    (httpcore2.ProxyError, "", "the proxy refused ({text})"),
    (zlib.error, "", "its reply is not the gzip it says it is"),
    (httpcore2.ProtocolError, "Server disconnected",
     "it hung up without a reply; whether it has the request is not known"),
    (httpcore2.ProtocolError, "peer closed connection", "it hung up in the middle of its reply"),
    (httpcore2.ProtocolError, "", "what it replied is not HTTP"),
)  # fmt: skip
"""An error, how its text begins, and what is said of it; the first that fits."""


def why(error: BaseException, seconds: float) -> str:
    """What went wrong, in words. The library's own words are shown only where they cannot contain what was sent."""
    text = str(error)
    for kind, begins, said in _SAID:
        if isinstance(error, kind) and text.startswith(begins):
            return said.format(seconds=seconds, text=text[:60])
    cause = error.args[0] if error.args and isinstance(error.args[0], OSError) else error
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted ({cause.verify_message})"
        case ssl.SSLError():
            return f"a secure connection failed ({(cause.reason or 'TLS error').replace('_', ' ').lower()})"
        case socket.gaierror():
            return f"its name is not found ({cause.strerror})"
        case ConnectionRefusedError():
            return "nobody listens there (connection refused)"
        case OSError(strerror=reason):
            return f"the connection broke ({reason or type(cause).__name__})"
        case _:
            return f"the connection broke ({type(cause).__name__})"
