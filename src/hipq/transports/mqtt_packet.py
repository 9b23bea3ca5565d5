"""Decoding MQTT's packets.

paho reads them too, but takes a message with bad properties for the end of the connection, and needs longer.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, NamedTuple

from hipq.transports.base import Message

ID_PROPERTY: Final = "hipq-id"
FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]")
"""Characters that must not be in text: servers disconnect a client that sends them, and paho one that receives
U+FEFF."""


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


def properties_of(raw: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The user properties and the correlation data. The other properties are skipped by their lengths."""
    pairs: list[tuple[bytes, bytes]] = []
    correlation, at = b"", 0
    while at < len(raw):
        kind, at = raw[at], at + 1
        if kind in (3, 8, 9, 38):
            value, at = _sized(raw, at)
            if kind == 38:
                other, at = _sized(raw, at)
                pairs.append((value, other))
            elif kind == 9:
                correlation = value
        elif kind == 11:
            _, at = _counted(raw, at)
        elif kind in (1, 2, 35):
            at += {1: 1, 2: 4, 35: 2}[kind]
        else:
            break
    return pairs, correlation


def _sized(raw: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
    return raw[at + 2 : end], end


def message_of(arrived: Arrived, handle: Any) -> Message:
    pairs, correlation = properties_of(arrived.properties)
    headers = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in pairs}
    message_id = headers.pop(ID_PROPERTY, "")
    if not message_id or len(message_id) > 200 or not message_id.isprintable():
        digest = hashlib.blake2b(digest_size=20)
        for part in (arrived.topic, correlation, *(text for pair in pairs for text in pair), arrived.body):
            digest.update(b"%d:" % len(part) + part)
        message_id = digest.hexdigest()
    topic = arrived.topic.decode(errors="replace")
    key = correlation.decode(errors="replace")
    return Message(arrived.body, message_id, key=key, headers=headers, subject=topic, handle=handle)
