"""Connections that reach only allowed hosts: a name is resolved once, all its addresses are checked, one is used."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import httpcore2

from hipq.errors import Invalid
from hipq.in_thread import in_thread
from hipq.sandbox.addresses import Allowed, resolve

Pool = httpcore2.AsyncConnectionPool
FAULTS: Final = (
    httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol, OSError,
    UnicodeError,
)  # fmt: skip
"""The errors that an exchange may raise, beside hipq's own refusals."""


class _Network(httpcore2.AnyIOBackend):
    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = self._allowed.pick(host, await in_thread(lambda: resolve(host, port)))
        for address in addresses[:-1]:
            try:
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await super().connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        raise Invalid(f"{path!r} is no host")


def pool(allowed: Allowed, together: int) -> Pool:
    """The connections of one batch."""
    return Pool(
        _secure(), max_connections=together, max_keepalive_connections=together, network_backend=_Network(allowed)
    )


@lru_cache(maxsize=1)
def _secure() -> ssl.SSLContext:
    """The TLS settings, made once because reading all certificates takes longer than a request."""
    return ssl.create_default_context()


def why(error: BaseException) -> str:
    """The error in words."""
    cause = error
    while cause.__cause__ or cause.__context__:
        cause = cause.__cause__ or cause.__context__ or cause
        if isinstance(cause, ssl.SSLError | OSError):
            break
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted ({cause.verify_message})"
        case ssl.SSLError():
            return "a secure connection failed"
        case socket.gaierror():
            return f"its name is not found ({cause.strerror})"
        case ConnectionRefusedError():
            return "nobody listens there (connection refused)"
        case UnicodeError():
            return "its name is no host name"
    match error:
        case httpcore2.ProtocolError():
            return "what it answered is not HTTP, or it hung up in the middle"
        case _:
            return f"the connection broke ({type(cause).__name__})"
