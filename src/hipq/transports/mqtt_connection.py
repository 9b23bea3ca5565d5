"""A connection to an MQTT server, and the messages in its packets."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, ClassVar, Final, NamedTuple

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from hipq.errors import HipqError
from hipq.transports.address import Address
from hipq.transports.base import Message, unreachable

OPEN_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 1.0
KEEP_ALIVE: Final = 30
"""Seconds of silence after which each side checks whether the other is alive."""

ID_PROPERTY: Final = "hipq-id"
FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]")
"""Characters that must not be in text: servers disconnect a client that sends them, and paho one that receives
U+FEFF."""

_CALLBACKS: Final = (
    "on_connect", "on_disconnect", "on_subscribe", "on_unsubscribe", "on_publish", "died", "arrived",
)  # fmt: skip


class _Client(paho.Client):
    """paho's client with a reader of its own. paho takes a message with bad properties for the end of the
    connection, so the message would be delivered for ever; paho's reader also needs four times as long."""

    arrived: Callable[[Arrived], None]
    died: Callable[[str], None]
    runs_in: Future[threading.Thread]

    def _handle_publish(self) -> MQTTErrorCode:
        self.arrived(read(self._in_packet["command"], bytes(self._in_packet["packet"])))
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def loop_forever(self, timeout: float = 1.0, retry_first_connection: bool = False) -> MQTTErrorCode:  # noqa: ARG002
        self.runs_in.set_result(threading.current_thread())
        why = "the connection ended"
        try:
            return super().loop_forever(timeout)
        except Exception as error:  # otherwise the thread would end with a traceback
            why = f"{type(error).__name__}: {error}"
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        finally:
            self.died(why)  # paho does not always report it, for instance if the process has too many files open


class MqttConnection:
    """A connection with paho's thread. It is never reconnected, because the numbers that acknowledge messages would
    then mean other messages, and paho would send unconfirmed messages again."""

    properties: ClassVar[Any] = Properties  # paho's class has no types

    def __init__(self, address: Address, name: str) -> None:
        self._address = address
        self._host, self._port = address.server(8883 if address.scheme == "mqtts" else 1883)
        self._opened: Future[Any] = Future()
        self._granted: Future[Sequence[Any]] = Future()
        self._replies: dict[int, Future[Any]] = {}
        """The server's replies by the number of the packet that they confirm."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._started = False
        self.failed: HipqError | None = None
        self.taken_over = False
        self.client = _Client(
            CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False, manual_ack=True,
        )  # fmt: skip
        self.client.max_inflight_messages = 65_535
        if address.user or address.password:
            self.client.username_pw_set(address.user, address.password)
        if address.scheme == "mqtts":
            self.client.tls_set_context(ssl.create_default_context())
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_publish = self.client.on_unsubscribe = self._on_reply
        self.client.on_socket_open = _at_once
        self.client.runs_in = Future()
        self.client.died = self._lost
        self.client.arrived = self.arrived

    def open(self, seconds: float = OPEN_SECONDS, *, expiry: int = 0, receive_maximum: int = 65_535) -> Any:
        """Connect; returns the server's properties."""
        wanted = self.properties(PacketTypes.CONNECT)
        wanted.SessionExpiryInterval = expiry
        wanted.ReceiveMaximum = receive_maximum
        until = time.monotonic() + seconds
        self.client.connect_timeout = max(seconds, 0.01)
        try:
            self.client.connect(self._host, self._port, KEEP_ALIVE, clean_start=not expiry, properties=wanted)
            self.client.loop_start()
            self._started = True
            return self._opened.result(max(until - time.monotonic(), 0.01))
        except HipqError:
            self.close()
            raise
        except (OSError, ValueError) as error:  # a time-out is an OSError, too
            self.abort()
            where = f"{self._host}:{self._port}"
            if isinstance(error, TimeoutError):
                raise self._address.unavailable(f"{where} did not reply within {seconds:.3g} seconds") from None
            kind = "encrypted connection" if self._address.scheme == "mqtts" else "connection"
            raise self._address.unavailable(unreachable(error, where) or f"no {kind} with {where} ({error})") from None

    def subscribe(self, topic: str, unwanted: Sequence[str]) -> None:
        """Subscribe to this topic and unsubscribe the others, which the server may have kept from an earlier
        session."""
        if unwanted:
            self.client.unsubscribe(list(unwanted))
        if not topic:
            settle(self._granted, ())
            return
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        self.client.subscribe(topic, options=options)
        try:
            (reason,) = self._granted.result(OPEN_SECONDS)
        except TimeoutError:
            raise self._address.unavailable(f"no reply within {OPEN_SECONDS:g} seconds") from None
        if reason.value in (0x8F, 0x9E, 0xA2):
            raise self._address.invalid(f"the server does not have such subscriptions ({reason})")
        if reason.value >= 0x80:
            raise self._address.unavailable(f"the server does not let {self._user} listen to this ({reason})")

    def close(self) -> None:
        """Send what is buffered, disconnect, and end the thread."""
        if self.failed is None and self.client.disconnect() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._over.wait(CLOSE_SECONDS)
            self._ended(CLOSE_SECONDS)
        self.abort()

    def abort(self) -> None:
        """Abort the connection at once. Bytes still in a buffer are never sent."""
        connection: Any = self.client.socket()
        self._lost("the connection was closed")
        if connection is not None:
            with suppress(OSError):  # it may be closed already
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)
        if self._ended(CLOSE_SECONDS):
            for name in _CALLBACKS:
                setattr(self.client, name, None)  # a reference cycle would keep the sockets open

    def _ended(self, seconds: float) -> bool:
        """Wait for the thread to end. paho's `loop_stop` fails if the thread ends at that moment."""
        if not self._started:
            return True
        try:
            thread = self.client.runs_in.result(seconds)
        except TimeoutError:
            return False
        thread.join(seconds)
        return not thread.is_alive()

    def arrived(self, message: Arrived) -> None:
        """Receive a message; only a subscribed connection gets any."""

    def reply_to(self, number: int, seconds: float) -> Any:
        """The server's reply to the packet of this number. TimeoutError, or the error that ended the connection."""
        reply = self._replies.setdefault(number, Future())
        if self.failed is not None:
            settle(reply, self.failed)
        try:
            return reply.result(max(seconds, 0))
        finally:
            self._replies.pop(number, None)

    @property
    def _user(self) -> str:
        return f"the user {self._address.user!r}" if self._address.user else "a user without a name"

    def _lost(self, why: str) -> None:
        with self._lock:
            if self.failed is None:
                self.failed = self._address.unavailable(why)
                for waiting in (self._opened, self._granted, *list(self._replies.values())):
                    settle(waiting, self.failed)
        self._over.set()

    # -- in paho's thread -------------------------------------------------------------------------------------------
    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, properties: Any) -> None:
        if reason.value < 0x80:
            settle(self._opened, properties)
        elif reason.value in (0x86, 0x87):
            self._lost("the server refuses the user name or the password")
        elif reason.value in (0x01, 0x84):
            self._lost("the server does not speak MQTT 5")
        else:
            self._lost(f"the server refuses the connection ({reason})")

    def _on_disconnect(self, _client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        said = flags.is_disconnect_packet_from_server
        self.taken_over = said and reason.value == 0x8E
        self._lost(f"the connection to {self._host}:{self._port} broke" + (f" ({reason})" if said else ""))

    def _on_subscribe(self, _client: Any, _data: Any, _mid: Any, reasons: Any, _properties: Any) -> None:
        settle(self._granted, reasons)

    def _on_reply(self, _client: Any, _data: Any, number: int, reason: Any, _properties: Any) -> None:
        settle(self._replies.setdefault(number, Future()), reason)


def settle(future: Future[Any], outcome: Any) -> None:
    """Give a future its result or its error, unless it has one."""
    with suppress(InvalidStateError):
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _at_once(_client: Any, _data: Any, connection: Any) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


# -- packets -----------------------------------------------------------------------------------------------------------
class Arrived(NamedTuple):
    topic: bytes
    number: int
    """The number that acknowledges the message; 0: no acknowledgement is wanted."""
    body: bytes
    properties: bytes


def read(command: int, packet: bytes) -> Arrived:
    end = 2 + int.from_bytes(packet[:2], "big")
    topic, number = packet[2:end], 0
    if command & 0x06:
        number = int.from_bytes(packet[end : end + 2], "big")
        end += 2
    length, start = _counted(packet, end)
    return Arrived(topic, number, packet[start + length :], packet[start : start + length])


def _counted(raw: bytes, at: int) -> tuple[int, int]:
    """A number of up to four bytes, each of which says whether another follows; and where it ends."""
    value = shift = 0
    while shift < 28:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return value, at


def properties_of(raw: bytes) -> tuple[list[tuple[bytes, bytes]], bytes, bytes]:
    """The user properties, the correlation data and the content type. The others are skipped by their lengths."""
    pairs: list[tuple[bytes, bytes]] = []
    correlation, content_type, at = b"", b"", 0
    while at < len(raw):
        kind, at = raw[at], at + 1
        if kind in (3, 8, 9, 38):
            value, at = _sized(raw, at)
            if kind == 38:
                other, at = _sized(raw, at)
                pairs.append((value, other))
            elif kind == 9:
                correlation = value
            elif kind == 3:
                content_type = value
        elif kind == 11:
            _, at = _counted(raw, at)
        elif kind in (1, 2, 35):
            at += {1: 1, 2: 4, 35: 2}[kind]
        else:
            break
    return pairs, correlation, content_type


def _sized(raw: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
    return raw[at + 2 : end], end


def message_of(arrived: Arrived, handle: Any) -> Message:
    pairs, correlation, content_type = properties_of(arrived.properties)
    headers = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in pairs}
    message_id = headers.pop(ID_PROPERTY, "")
    if not message_id or len(message_id) > 200 or not message_id.isprintable():
        digest = hashlib.blake2b(digest_size=20)
        for part in (arrived.topic, correlation, *(text for pair in pairs for text in pair), arrived.body):
            digest.update(b"%d:" % len(part) + part)
        message_id = digest.hexdigest()
    if content_type:
        headers.setdefault("content-type", content_type.decode(errors="replace"))
    topic = arrived.topic.decode(errors="replace")
    key = correlation.decode(errors="replace")
    return Message(arrived.body, message_id, key=key, headers=headers, subject=topic, handle=handle)
