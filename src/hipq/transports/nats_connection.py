"""A connection to NATS, and the meaning of its errors."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.errors import APIError, ServiceUnavailableError

from hipq.errors import Invalid, TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.base import unreachable
from hipq.transports.loop import SECONDS, cut

PORT: Final = 4222

logging.getLogger("nats").addHandler(logging.NullHandler())  # otherwise it writes to stderr in programs without logging


class NatsConnection:
    def __init__(self, address: Address, failed: Callable[[TransportUnavailable], None]) -> None:
        self._address = address
        self._failed = failed
        self._problem: Exception | None = None
        self.lost: TransportUnavailable | None = None
        self.client = TolerantClient()

    async def open(self) -> None:
        address, token = self._address, self._address.options.get("token")
        secret = address.options.get("tls") == "true"

        def supplied(value: str) -> Callable[[], str]:
            def ask() -> str:
                self._insist(secret)  # the library asks for it when the server has said whether it talks TLS
                return value

            return ask

        try:
            await self.client.connect(
                [_url(*server) for server in address.servers(PORT)],
                name="hipq", error_cb=self._note, closed_cb=self._closed,
                allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0, ping_interval=10,
                pending_size=0,  # nothing is buffered for an unreachable server
                user=address.user or None, password=supplied(address.password) if address.user else None,
                token=supplied(token) if token else None, tls=ssl.create_default_context() if secret else None,
            )  # fmt: skip
            self._insist(secret)
        except BaseException as error:
            said = self.unavailable(self._problem or error)
            self.cut()
            with suppress(Exception):
                await self.client.close()
            if isinstance(error, asyncio.CancelledError | Invalid):
                raise
            raise said from None
        self.js = self.client.jetstream(timeout=SECONDS)

    def _insist(self, secret: bool) -> None:
        if secret and not self.client._server_info.get("tls_required"):
            raise self._address.invalid("the server does not insist on TLS, so that tls=true cannot be had")

    @property
    def is_lost(self) -> bool:
        return self.lost is not None

    async def _note(self, error: Exception) -> None:
        self._problem = error
        if "permissions violation" in str(error):
            self._failed(self.unavailable(error))

    async def _closed(self) -> None:
        self.lose("the connection broke")

    def lose(self, why: str) -> None:
        if not self.lost:
            self.lost = self._address.unavailable(why)
            self._failed(self.lost)

    def cut(self) -> None:
        """Abort the connection at once: bytes that the server does not have yet are never sent."""
        self.lose("the connection was given up")
        cut(getattr(self.client._transport, "_io_writer", None))

    async def close(self) -> None:
        with suppress(OSError, NatsError):
            await self.client.close()

    def unavailable(self, error: BaseException) -> TransportUnavailable:
        """The error in one sentence."""
        where = self._address.hosts or f"localhost:{PORT}"
        match error:
            case TransportUnavailable():
                return error
            case _ if "permissions violation" in (said := str(self._problem).lower()):
                why = f"its user has no permission ({said.removeprefix('nats: ')})"
            case _ if self.lost:
                return self.lost
            case NatsError() if "authorization" in str(error).lower() or "authentication" in str(error).lower():
                why = f"{where} does not accept the user, password or token"
            case ServiceUnavailableError() | NoRespondersError():
                why = f"{where} has no JetStream for this account: start nats-server with -js"
            case APIError():
                why = f"JetStream refuses it: {error.description}"
            case TimeoutError():
                why = f"{where} does not answer"
            case _:
                why = unreachable(error, where) or f"the connection to {where} failed ({error or type(error).__name__})"
        return self._address.unavailable(why)


class TolerantClient(Client):
    """A client that no message can stop: the library's own stops reading when a subject or a header is not UTF-8."""

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (ValueError, IndexError):
            return {"hipq-unreadable": "the headers"}

    def _build_message(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> Msg:
        return Msg(
            _client=self, subject=subject.decode(errors="replace"), reply=reply.decode(errors="replace"), data=data,
            headers=headers, _sid=sid,
        )  # fmt: skip


def _url(host: str, port: int) -> str:
    return f"nats://[{host}]:{port}" if ":" in host else f"nats://{host}:{port}"
