"""Sending to MQTT: at most once, by many threads through one connection."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any, Final
from uuid import uuid4

from paho.mqtt.packettypes import PacketTypes

from hipq.errors import HipqError, Invalid, TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.base import Outgoing
from hipq.transports.mqtt_connection import MqttConnection, new_properties
from hipq.transports.mqtt_packet import FORBIDDEN, ID_PROPERTY

LARGEST: Final = 268_435_455
"""The largest packet of the protocol, in bytes."""


class _SendingConnection(MqttConnection):
    """A connection through which many threads send."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, f"hipq-{uuid4().hex[:18]}")
        self._waiting: dict[int, Future[Any]] = {}
        self._room = threading.BoundedSemaphore(1)
        self._largest = LARGEST
        self.client.on_publish = self._on_publish

    def start(self, seconds: float) -> None:
        server = self.open(seconds)
        self._room = threading.BoundedSemaphore(min(getattr(server, "ReceiveMaximum", 65_535), 1000))
        self._largest = getattr(server, "MaximumPacketSize", LARGEST)

    def publish(self, body: bytes, properties: Any, seconds: float) -> None:
        until = time.monotonic() + seconds
        if len(body) + 1000 > self._largest:  # the server would end the connection of all threads
            raise Invalid(f"{self._address}: {len(body)} bytes are more than the server takes ({self._largest})")
        # paho would keep further messages and send them after their senders gave up
        if not self._room.acquire(timeout=max(seconds, 0)):
            raise self._unavailable(f"no room within {seconds:.3g} seconds; the message was not sent")
        number = 0
        try:
            number = self.client.publish(self._address.name, body, 1, properties=properties).mid
            confirmed = self._waiting.setdefault(number, Future())
            if self.failed is not None:
                raise self._unavailable(f"{_why(self.failed)}; whether it has the message is not known")
            reason = confirmed.result(max(until - time.monotonic(), 0))
        except TimeoutError:
            self.abort()  # this ends other threads' sends, too: a server that is silent for so long is not there
            said = f"no reply within {seconds:.3g} seconds; whether it has the message is not known"
            raise self._unavailable(said) from None
        finally:
            self._waiting.pop(number, None)
            self._room.release()
        if reason.value == 0x87:
            raise self._unavailable(f"the server does not let {self._user} send to this ({reason})")
        if reason.value >= 0x80:
            raise self._unavailable(f"the server refuses the message ({reason})")

    def ended(self, error: HipqError) -> None:
        super().ended(error)
        said = f"{_why(error)}; whether it has the message is not known"
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(self._unavailable(said))

    def _on_publish(self, _client: Any, _data: Any, number: int, reason: Any, _properties: Any) -> None:
        confirmed = self._waiting.setdefault(number, Future())
        if not confirmed.done():
            confirmed.set_result(reason)


def _why(error: HipqError) -> str:
    return str(error).partition(": ")[2]


class MqttSender:
    """One connection for all threads, and a new one after it broke. Its session ends with it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._connection: _SendingConnection | None = None

    def send(self, message: Outgoing, seconds: float) -> None:
        properties = self._properties(message)
        until = time.monotonic() + seconds
        if not self._lock.acquire(timeout=max(seconds, 0)):
            why = f"no connection within {seconds:.3g} seconds; the message was not sent"
            raise TransportUnavailable(f"{self._address}: {why}")
        try:
            connection = self._connected(until - time.monotonic())
        finally:
            self._lock.release()
        connection.publish(message.body, properties, until - time.monotonic())

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _connected(self, seconds: float) -> _SendingConnection:
        if self._connection is not None and self._connection.failed is None:
            return self._connection
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        connection = _SendingConnection(self._address)
        connection.start(seconds)
        self._connection = connection
        return connection

    def _properties(self, message: Outgoing) -> Any:
        texts = [*message.headers, *message.headers.values()]
        if any(FORBIDDEN.search(text) or len(text) > 16_000 for text in texts) or len(message.key) > 16_000:
            raise Invalid(f"{self._address}: headers must be printable text of up to 16,000 characters")
        properties: Any = new_properties(PacketTypes.PUBLISH)
        properties.UserProperty = [(ID_PROPERTY, uuid4().hex), *message.headers.items()]
        if message.key:
            properties.CorrelationData = message.key.encode()
        return properties
