"""MQTT 5: `mqtt://user:password@server:1883/topic/with/levels`, `mqtts://` for TLS. Listening takes + and # too.

Options: `group`; `expiry`: the seconds for which the server keeps messages while nobody listens (604800, a week);
`share`: the number of sessions of the group among which messages are divided (1). A session has a fixed name, because
the server keeps unacknowledged messages by that name; which source serves which session is claimed through
`Checkpoints`. A source without a session stands by. A source that sees a session free for a while serves that one too,
and keeps it, even if another source starts later and stands by.

A message's user properties are its headers, and its correlation data is the key. MQTT has no message ids: hipq's sender
writes one (`hipq-id`), and messages without it that are equal in all, topic to properties, are one message. A server
keeps a message only for the sessions that exist: a message sent before anybody has listened is confirmed, and gone.
"""

from __future__ import annotations

import hashlib
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes

from hipq.errors import HipqError, Invalid
from hipq.transports.address import Address
from hipq.transports.base import Checkpoints, Message, Outgoing
from hipq.transports.mqtt_connection import CLOSE_SECONDS, FORBIDDEN, ID_PROPERTY, Arrived, MqttConnection, message_of

WEEK: Final = 604_800
RENEW_SECONDS: Final = 1.0
"""How often a source renews its claims; without any, how often it tries to get one."""
LOOK_SECONDS: Final = 2.0
FREE_SECONDS: Final = 10.0
"""Seconds for which another session must have been free before a source that has one serves it, too."""
TRIES: Final = 8
"""Sessions tried at a time by a source that has none."""
LARGEST: Final = 268_435_455
"""The largest packet of the protocol, in bytes."""
LINGER_SECONDS: Final = 0.001
"""Messages that follow each other within this time go into the same batch."""


def check(address: Address) -> None:
    address.allow({"expiry", "group", "share"})
    address.number("expiry", WEEK, 60, 4_294_967_294)
    address.number("share", 1, 1, 64)
    address.server(1883)
    levels = address.name.split("/")
    if "#" in address.name[:-1] or any(len(level) > 1 and ("+" in level or "#" in level) for level in levels):
        raise address.invalid("+ and # stand for whole levels of a topic, # for the last: a/+/c, a/#")
    if levels[0] == "$share":
        raise address.invalid("write share=2 after the topic to share it between two, not $share before it")
    if len(address.name.encode()) > 1000 or FORBIDDEN.search(address.name):
        raise Invalid(f"{address!s:.80}: a topic has up to 1,000 bytes of printable text")


class _SendingConnection(MqttConnection):
    """A connection through which many threads send."""

    def start(self, seconds: float) -> None:
        server = self.open(seconds)
        self._room = threading.BoundedSemaphore(min(getattr(server, "ReceiveMaximum", 65_535), 1000))
        self._largest = getattr(server, "MaximumPacketSize", LARGEST)

    def publish(self, body: bytes, properties: Any, seconds: float) -> None:
        until = time.monotonic() + seconds
        if len(body) + 1000 > self._largest:  # the server would end the connection of all threads
            raise self._address.invalid(f"{len(body)} bytes are more than the server takes ({self._largest})")
        # paho would keep further messages and send them after their senders gave up
        if not self._room.acquire(timeout=max(seconds, 0)):
            raise self._address.unavailable(f"no room within {seconds:.3g} seconds; the message was not sent")
        try:
            number = self.client.publish(self._address.name, body, 1, properties=properties).mid
            reason = self.reply_to(number, until - time.monotonic())
        except TimeoutError:
            self.abort()  # this ends other threads' sends, too: a server that is silent for so long is not there
            said = f"no reply within {seconds:.3g} seconds; whether it has the message is not known"
            raise self._address.unavailable(said) from None
        except HipqError as error:
            why = str(error).removeprefix(f"{self._address}: ")
            raise self._address.unavailable(f"{why}; whether it has the message is not known") from None
        finally:
            self._room.release()
        if reason.value == 0x87:
            raise self._address.unavailable(f"the server does not let {self._user} send to this ({reason})")
        if reason.value >= 0x80:
            raise self._address.unavailable(f"the server refuses the message ({reason})")


class MqttSender:
    """One connection for all threads, and a new one after it broke. Its session ends with it."""

    def __init__(self, address: Address) -> None:
        if "+" in address.name or "#" in address.name:
            raise address.invalid("one can listen to a topic with + or #, but not send to it")
        self._address = address
        self._lock = threading.Lock()
        self._connection: _SendingConnection | None = None

    def send(self, message: Outgoing, seconds: float) -> None:
        properties = self._properties(message)
        until = time.monotonic() + seconds
        if not self._lock.acquire(timeout=max(seconds, 0)):
            why = f"no connection within {seconds:.3g} seconds; the message was not sent"
            raise self._address.unavailable(why)
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
        connection = _SendingConnection(self._address, f"hipq-{uuid4().hex[:18]}")
        connection.start(seconds)
        self._connection = connection
        return connection

    def _properties(self, message: Outgoing) -> Any:
        texts = [*message.headers, *message.headers.values()]
        if any(FORBIDDEN.search(text) or len(text) > 16_000 for text in texts) or len(message.key) > 16_000:
            raise self._address.invalid("headers must be printable text of up to 16,000 characters")
        properties = MqttConnection.properties(PacketTypes.PUBLISH)
        properties.UserProperty = [(ID_PROPERTY, uuid4().hex), *message.headers.items()]
        if message.key:
            properties.CorrelationData = message.key.encode()
        return properties


class _SessionConnection(MqttConnection):
    """A connection that serves one session of the group."""

    def __init__(self, address: Address, name: str, deliver: Callable[[_SessionConnection, Arrived], None]) -> None:
        self._deliver = deliver
        self.closing = False
        super().__init__(address, name)

    def arrived(self, message: Arrived) -> None:
        self._deliver(self, message)

    @property
    def is_blocked(self) -> bool:
        """Whether the reading thread may be made to wait for room."""
        return self.failed is None and not self.closing and self._granted.done()

    def acknowledge(self, number: int) -> None:
        if self.failed is None and self.client.ack(number, 1) != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._lost("the connection broke")

    def close(self) -> None:
        """Close the connection after a round trip: the server's reply shows that it has read all acknowledgements.
        Otherwise it might deliver those messages again to the session's next source."""
        number = self.client.unsubscribe("hipq/nothing")[1] if self.failed is None else None
        if number is not None:
            with suppress(TimeoutError, HipqError):  # on an error the messages may be delivered again
                self.reply_to(number, CLOSE_SECONDS)
        super().close()


class MqttSource:
    """The claimed sessions, each with its connection; messages of all of them wait in one deque."""

    def __init__(self, address: Address, group: str, checkpoints: Checkpoints) -> None:
        self._address, self._group, self._checkpoints = address, group, checkpoints
        self._share = address.number("share", 1, 1, 64)
        self._expiry = address.number("expiry", WEEK, 60, 4_294_967_294)
        self._connections: dict[str, _SessionConnection] = {}
        self._free: dict[str, float] = {}
        self._renew_at = self._look_at = 0.0
        self._arrived: deque[tuple[_SessionConnection, Arrived]] = deque()
        self._held = self._most = 0
        self._changed = threading.Condition()

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        until = time.monotonic() + seconds
        self._most = most
        while True:
            now = time.monotonic()
            self._renew_claims(most, now)
            messages = self._take(most, min(until, self._renew_at) - now)
            if messages or time.monotonic() >= until:
                return messages

    def done(self, messages: Sequence[Message]) -> None:
        """Acknowledge messages. If their connection broke they are delivered again, and the next `receive` raises."""
        for message in messages:
            connection, number = message.handle
            if number:  # a message with QoS 0 has no number and needs no acknowledgement
                connection.acknowledge(number)
        with self._changed:
            self._held -= len(messages)
            self._changed.notify_all()

    def lag(self) -> int | None:
        return None

    def close(self) -> None:
        until = time.monotonic() + 3 * CLOSE_SECONDS
        for part in list(self._connections):
            with suppress(Exception):  # on an error the claim runs out by itself
                self._give_up(part, gently=time.monotonic() < until)
                self._checkpoints.leave(part)

    # -- how --------------------------------------------------------------------------------------------------------
    def _deliver(self, connection: _SessionConnection, message: Arrived) -> None:
        """Store a message, in paho's thread, which waits while there is no room: not every server respects the
        receive maximum. It does not wait before the subscription is confirmed: the session's old messages arrive
        ahead of that reply, and nobody makes room before it."""
        with self._changed:
            while connection.is_blocked and len(self._arrived) + self._held >= self._most:
                self._changed.wait(CLOSE_SECONDS / 2)
            if not connection.closing:
                self._arrived.append((connection, message))
                self._changed.notify_all()

    def _take(self, most: int, seconds: float) -> list[Message]:
        with self._changed:
            if not self._changed.wait_for(lambda: self._arrived, max(seconds, 0)):
                return []
        before, limit = 0, time.monotonic() + 10 * LINGER_SECONDS
        while before < len(self._arrived) < most and time.monotonic() < limit:
            before = len(self._arrived)
            time.sleep(LINGER_SECONDS)
        with self._changed:
            found = [self._arrived.popleft() for _ in range(min(most - self._held, len(self._arrived)))]
            messages = [
                message_of(one, (connection, one.number)) for connection, one in found if connection.failed is None
            ]
            self._held += len(messages)
            self._changed.notify_all()
        return messages

    def _renew_claims(self, most: int, now: float) -> None:
        """Renew the source's claims, and make sure that every session is served."""
        for part, connection in list(self._connections.items()):
            if connection.failed:
                ours = self._checkpoints.keep(part, "")
                if ours and not connection.taken_over:
                    raise connection.failed from None
                self._give_up(part)  # a server may not say that another source has the session now
                if ours:
                    self._checkpoints.leave(part)
        if now < self._renew_at:
            return
        self._renew_at = now + RENEW_SECONDS
        for part in list(self._connections):
            if not self._checkpoints.keep(part, ""):
                self._give_up(part)
        if not self._connections:
            self._begin(most)
        elif now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._adopt(most, now)

    def _begin(self, most: int) -> None:
        part = next((one for one in self._others()[:TRIES] if self._checkpoints.take(one) is not None), None)
        if part is not None:
            self._serve(part, most)

    def _adopt(self, most: int, now: float) -> None:
        """Look at one of the other sessions, and serve it if it was free at the last looks, too."""
        others = self._others()
        ripe = [part for part in others if now - self._free.get(part, now) > FREE_SECONDS]
        for part in (ripe or others)[:1]:
            if self._checkpoints.take(part) is None:
                self._free.pop(part, None)
            elif part in ripe:
                self._free.pop(part)
                self._serve(part, most)
            else:
                self._checkpoints.leave(part)
                self._free.setdefault(part, now)

    def _others(self) -> list[str]:
        """The sessions this source does not have, in random order. They include those of a time when `share` was
        larger: messages may still be kept for them."""
        known = {f"session-{number}" for number in range(self._share)}
        known |= {part for part in self._checkpoints.read() if re.fullmatch("session-[0-9]{1,2}", part)}
        others = sorted(known - set(self._connections))
        random.shuffle(others)
        return others

    def _serve(self, part: str, most: int) -> None:
        number = int(part.partition("-")[2])
        digest = hashlib.blake2b(f"{self._group}\n{self._address.name}\n{number}".encode(), digest_size=9).hexdigest()
        name = f"hipq-{digest}"  # 23 characters: the longest name that every server must accept
        connection = _SessionConnection(self._address, name, self._deliver)
        shared, alone = f"$share/{_level(self._group)}/{self._address.name}", self._address.name
        topic = "" if number >= self._share else shared if self._share > 1 else alone
        try:
            room = max(1, min(most // self._share, 65_535))
            connection.open(expiry=self._expiry, receive_maximum=room)
            connection.subscribe(topic, [other for other in (shared, alone) if other != topic])
        except BaseException:
            connection.abort()
            self._checkpoints.leave(part)
            raise
        self._connections[part] = connection

    def _give_up(self, part: str, *, gently: bool = True) -> None:
        connection = self._connections.pop(part)
        with self._changed:
            connection.closing = True  # its thread may be waiting for room
            self._changed.notify_all()
        if gently:
            connection.close()
        else:
            connection.abort()


sender, source = MqttSender, MqttSource


def _level(group: str) -> str:
    """The group's name as a level of a topic."""
    plain = re.sub("[^A-Za-z0-9_.-]", "_", group)[:100]
    return plain if plain == group else f"{plain}-{hashlib.blake2b(group.encode(), digest_size=4).hexdigest()}"
