"""A connection to a Redis server, and the meaning of its errors."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from redis import exceptions
from redis.connection import Connection, SSLConnection

from hipq.errors import HipqError, Invalid
from hipq.transports.address import Address
from hipq.transports.base import unreachable

SOCKET_SECONDS: Final = 5.0
"""Seconds without a reply after which a server counts as down."""


class RedisTarget(NamedTuple):
    host: str
    port: int
    database: int
    stream: str


def target_of(address: Address) -> RedisTarget:
    host, port = address.server(6379)
    first, slash, rest = address.name.partition("/")
    if slash and first.isascii() and first.isdigit():
        if not rest or len(first) > 5:
            raise Invalid(f"{address} does not say which stream; it looks like redis://server:6379/2/STREAM")
        return RedisTarget(host, port, int(first), rest)
    return RedisTarget(host, port, 0, address.name)


class RedisConnection:
    """One connection. redis-py's clients would repeat a command after a failure, and so send a message twice."""

    def __init__(self, address: Address) -> None:
        self._address = address
        where = target_of(address)
        encrypted = address.scheme == "rediss"
        more: dict[str, Any] = {"ssl_cert_reqs": "required", "ssl_check_hostname": True} if encrypted else {}
        options: dict[int, int] = {}
        # otherwise data written while the network is down may arrive much later
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            options[socket.TCP_USER_TIMEOUT] = int(SOCKET_SECONDS * 1000)
        self._connection: Any = (SSLConnection if encrypted else Connection)(
            host=where.host, port=where.port, db=where.database,
            username=address.user or None, password=address.password or None,
            socket_timeout=SOCKET_SECONDS, socket_connect_timeout=SOCKET_SECONDS,
            socket_keepalive=True, socket_keepalive_options=options,
            protocol=2,  # HELLO of protocol 3 makes old servers repeat the password in their error
            **more,
        )  # fmt: skip

    def open(self) -> None:
        """Connect, unless it is connected."""
        try:
            self._connection.connect()
            if self._readable():  # nothing was requested, so the server has hung up
                self._connection.disconnect()
                self._connection.connect()
        except (exceptions.RedisError, OSError, ValueError) as error:
            raise failure(self._address, error) from None

    def ask(self, *commands: Sequence[Any]) -> list[Any]:
        """The replies to these commands; an error reply is a `ResponseError` among them."""
        replies: list[Any] = []
        try:
            self._connection.send_packed_command(self._connection.pack_commands(commands))
            for _ in commands:
                try:
                    replies.append(self._connection.read_response())
                except exceptions.ResponseError as error:
                    replies.append(error)
        except (exceptions.RedisError, OSError) as error:
            self.close()
            raise failure(self._address, error) from None
        return replies

    def get(self, *command: Any) -> Any:
        """The reply to a command; an error reply is raised as hipq's error."""
        (reply,) = self.ask(command)
        if isinstance(reply, exceptions.ResponseError):
            raise failure(self._address, reply) from None
        return reply

    def close(self) -> None:
        with suppress(Exception):  # the connection is gone either way
            self._connection.disconnect()

    def _readable(self) -> bool:
        try:
            return bool(self._connection.can_read())
        except (exceptions.RedisError, OSError):
            return True


def failure(address: Address, error: Exception) -> HipqError:
    where = target_of(address)
    server = f"{where.host}:{where.port}"
    said = str(error).replace(address.password, "…") if address.password else str(error)
    if said.startswith("WRONGTYPE"):
        return address.invalid(f"{where.stream!r:.80} is there already, but is not a stream")
    return address.unavailable(unreachable(error, server) or _meaning(error, said, server, address.user))


def _meaning(error: Exception, said: str, server: str, user: str) -> str:
    if said.startswith(("MOVED", "ASK ")):
        return f"{server} belongs to a cluster; name the server of it that has this stream"
    if "Authentication required" in said or said.startswith("NOAUTH"):
        return f"the server wants a password; write redis://user:password@{server}/…"
    match error:
        case exceptions.NoPermissionError():
            return f"the server does not let the user {user or 'default'!r} do this ({said})"
        case exceptions.AuthenticationError():
            return "the server refuses the user name or the password"
        case exceptions.BusyLoadingError():
            return "the server is still loading its data"
        case exceptions.OutOfMemoryError():
            return "the server has no memory left (see its setting maxmemory)"
        case exceptions.ReadOnlyError():
            return "the server is a replica that takes no writes; name the primary in the URL"
        case exceptions.TimeoutError():
            return f"{server} did not reply within {SOCKET_SECONDS:g} seconds"
        case exceptions.ConnectionError():
            return f"the connection to {server} broke ({said.rstrip('.')})"
    return f"the server says: {said}"
