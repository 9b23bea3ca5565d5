"""A connection to an MQTT server."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from hipq.errors import HipqError, Invalid, TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.host import host_and_port
from hipq.transports.mqtt_packet import Arrived, read

OPEN_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 1.0
KEEP_ALIVE: Final = 30
"""Seconds of silence after which each side checks whether the other is alive."""

new_properties: Any = Properties  # paho's class has no types
_CALLBACKS: Final = (
    "on_connect", "on_disconnect", "on_subscribe", "on_unsubscribe", "on_publish", "died", "arrived",
)  # fmt: skip


def server(address: Address) -> tuple[str, int]:
    return host_and_port(address, 8883 if address.scheme == "mqtts" else 1883)


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

    def __init__(self, address: Address, name: str) -> None:
        self._address = address
        self._host, self._port = server(address)
        self._opened: Future[Any] = Future()
        self._granted: Future[Sequence[Any]] = Future()
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
        self.client.on_socket_open = _at_once
        self.client.runs_in = Future()
        self.client.died = self._lost
        self.client.arrived = self.arrived

    def open(self, seconds: float, *, expiry: int = 0, receive_maximum: int = 65_535) -> Any:
        """Connect; returns the server's properties."""
        wanted: Any = new_properties(PacketTypes.CONNECT)
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
            encrypted = self._address.scheme == "mqtts"
            raise self._unavailable(_meaning(error, self._host, self._port, seconds, encrypted)) from None

    def subscribe(self, topic: str, unwanted: Sequence[str]) -> None:
        """Subscribe to this topic and unsubscribe the others, which the server may have kept from an earlier
        session."""
        if unwanted:
            self.client.unsubscribe(list(unwanted))
        if not topic:
            with self._lock:
                if not self._granted.done():
                    self._granted.set_result(())
            return
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        self.client.subscribe(topic, options=options)
        try:
            (reason,) = self._granted.result(OPEN_SECONDS)
        except TimeoutError:
            raise self._unavailable(f"no reply within {OPEN_SECONDS:g} seconds") from None
        if reason.value in (0x8F, 0x9E, 0xA2):
            raise Invalid(f"{self._address}: the server does not have such subscriptions ({reason})")
        if reason.value >= 0x80:
            raise self._unavailable(f"the server does not let {self._user} listen to this ({reason})")

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
            try:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already
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

    def ended(self, error: HipqError) -> None:
        """Called once, when the connection's end is first known, with the reason."""
        if not self._opened.done():
            self._opened.set_exception(error)
        if not self._granted.done():
            self._granted.set_exception(error)

    @property
    def _user(self) -> str:
        return f"the user {self._address.user!r}" if self._address.user else "a user without a name"

    def _unavailable(self, why: str) -> TransportUnavailable:
        return TransportUnavailable(f"{self._address}: {why}")

    def _lost(self, why: str) -> None:
        with self._lock:
            if self.failed is None:
                self.failed = self._unavailable(why)
                self.ended(self.failed)
        self._over.set()

    # -- in paho's thread -------------------------------------------------------------------------------------------
    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, properties: Any) -> None:
        if reason.value < 0x80 and not self._opened.done():
            self._opened.set_result(properties)
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
        if not self._granted.done():
            self._granted.set_result(reasons)


def _at_once(_client: Any, _data: Any, connection: Any) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _meaning(error: Exception, host: str, port: int, seconds: float, encrypted: bool) -> str:
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"there is no host {host}"
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens at {host}:{port} (connection refused)"
    if isinstance(error, TimeoutError):
        return f"{host}:{port} did not reply within {seconds:.3g} seconds"
    if isinstance(error, ssl.SSLError) or (encrypted and isinstance(error, ConnectionResetError)):
        return f"no encrypted connection with {host}:{port} ({error})"
    return f"no connection with {host}:{port} ({error})"
