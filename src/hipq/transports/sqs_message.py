"""Messages as SQS carries them.

Headers are message attributes, of which SQS allows ten. A body that is not text as SQS wants it travels as base64 and
is restored byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from contextlib import suppress
from typing import Any, Final

from hipq.transports.address import Address
from hipq.transports.base import KEY_HEADER, Message, Outgoing, key_in, quoted

ENCODING_HEADER: Final = "hipq-encoding"
NO_GROUP: Final = "hipq"
"""The group of messages without a key in a FIFO queue."""

_NOT_TEXT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ATTRIBUTE: Final = re.compile(r"(?!aws\.|amazon\.)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.IGNORECASE)
_GROUP: Final = re.compile(r"[!-~]{1,128}")


def outgoing(address: Address, message: Outgoing) -> dict[str, Any]:
    """The arguments of SQS's call for this message."""
    headers = dict(message.headers)
    if message.key and KEY_HEADER not in (name.lower() for name in headers):
        headers[KEY_HEADER] = quoted(message.key)
    body, encoding = _encoded(message.body)
    if encoding:
        headers[ENCODING_HEADER] = encoding
    if len(headers) > 10:
        raise address.invalid(f"SQS takes ten headers, with those of hipq, and this message has {len(headers)}")
    parts: dict[str, Any] = {"MessageBody": body}
    if headers:
        parts["MessageAttributes"] = {name: _attribute(address, name, value) for name, value in headers.items()}
    if address.name.endswith(".fifo"):
        parts["MessageGroupId"] = _group(message.key)
        parts["MessageDeduplicationId"] = _digest(message)
    return parts


def _encoded(body: bytes) -> tuple[str, str]:
    """The body as text that SQS accepts, and how it was encoded."""
    if not body:
        return "-", "empty"  # SQS refuses messages without a body
    with suppress(UnicodeDecodeError):
        text = body.decode()
        if not _NOT_TEXT.search(text):
            return text, ""
    return base64.b64encode(body).decode(), "base64"


def _attribute(address: Address, name: str, value: str) -> dict[str, str]:
    if len(name) > 256 or not _ATTRIBUTE.fullmatch(name):
        raise address.invalid(f"SQS takes no header named {name!r:.60}: letters, digits, - _ and single dots only")
    if not value or _NOT_TEXT.search(value):
        raise address.invalid(f"SQS takes no empty header and no control characters, but {name} is {value!r:.60}")
    return {"DataType": "String", "StringValue": value}


def _group(key: str) -> str:
    """The message group of a key, which keeps messages of one key in order. A key that SQS does not accept is
    replaced by its digest."""
    if not key:
        return NO_GROUP
    return key if _GROUP.fullmatch(key) else hashlib.sha256(key.encode(errors="replace")).hexdigest()


def _digest(message: Outgoing) -> str:
    """The deduplication id. It is the same for the same message sent again, so that a FIFO queue drops it; another
    attempt is another message."""
    parts = [message.body, message.key.encode(errors="replace")]
    parts += [f"{name}={value}".encode(errors="replace") for name, value in sorted(message.headers.items())]
    whole = hashlib.sha256()
    for part in parts:
        whole.update(b"%d:" % len(part) + part)
    return whole.hexdigest()


def incoming(said: dict[str, Any], queue: str) -> Message:
    """The message in SQS's answer."""
    headers = {}
    for name, value in said.get("MessageAttributes", {}).items():
        binary = value.get("BinaryValue")
        headers[name] = value.get("StringValue", "") if binary is None else bytes(binary).decode(errors="replace")
    body = said.get("Body", "").encode(errors="replace")
    encoding = headers.get(ENCODING_HEADER)
    if encoding == "empty":
        body = b""
    elif encoding == "base64":
        with suppress(binascii.Error):  # a body that is not the base64 it claims to be stays as it is
            body = base64.b64decode(body, validate=True)
    headers.pop(ENCODING_HEADER, None)
    group = said.get("Attributes", {}).get("MessageGroupId", "")
    message = Message(body, said["MessageId"], headers=headers, subject=queue, handle=said["ReceiptHandle"])
    message.key = key_in(message.headers) or ("" if group == NO_GROUP else group)
    return message
