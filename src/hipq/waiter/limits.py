"""What SQS and DynamoDB accept. It is checked before a message is acknowledged, because nobody could be told later.

SQS's rules: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hipq.errors import Invalid, shown
from hipq.waiter.message import Attributes

HORIZON: Final = 900
"""Seconds for which SQS can delay a message."""
LARGEST: Final = 1_048_576
"""Bytes of a message, and of a whole batch. A queue may be set to accept less."""
BATCH: Final = 10
ATTRIBUTES: Final = 10
LARGEST_ITEM: Final = 409_600
"""Bytes of an item in DynamoDB, with its copies in the table's local indexes."""
ROOM: Final = 1024
"""Bytes that claims and failures may add to an item later."""

_NOT_TEXT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_QUEUE: Final = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_ID: Final = re.compile("[!-~]{1,128}")
_ATTRIBUTE: Final = re.compile(r"(?!aws\.|amazon\.)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.IGNORECASE)
_TYPE: Final = re.compile(r"(String|Number|Binary)(\.[^\x00-\x1f]+)?")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


def queue_name(name: object) -> str:
    if not isinstance(name, str) or not _QUEUE.fullmatch(name):
        raise Invalid(
            f"a queue's name has up to 80 letters, digits, - and _, and may end in .fifo; {shown(name)} is none"
        )
    return name


def text(body: object, what: str) -> str:
    if not isinstance(body, str):
        raise Invalid(f"{what} must be text, not {type(body).__name__}; bytes go into an attribute, or as base64")
    if not body:
        raise Invalid(f"{what} is empty, which SQS does not take")
    if found := _NOT_TEXT.search(body):
        raise Invalid(f"{what} has the character U+{ord(found[0]):04X} at {found.start()}, which SQS does not take")
    return body


def attributes(given: Attributes | None) -> dict[str, dict[str, Any]]:
    """The given attributes, checked, as SQS wants them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise Invalid(f"attributes must be a mapping of names to values, not {type(given).__name__}")
    if len(given) > ATTRIBUTES:
        raise Invalid(f"SQS takes {ATTRIBUTES} attributes, and this message has {len(given)}")
    return {_attribute_name(name): _attribute(name, value) for name, value in given.items()}


def _attribute_name(name: object) -> str:
    if not isinstance(name, str) or len(name) > 256 or not _ATTRIBUTE.fullmatch(name):
        raise Invalid(
            f"SQS takes no attribute named {shown(name)}: up to 256 letters, digits, -, _ and single dots, "
            "and not AWS. or Amazon. in front"
        )
    return name


def _attribute(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Invalid(f'attribute {name} must be like {{"DataType": "String", "StringValue": "…"}}, not {shown(value)}')
    kind = value.get("DataType")
    if not isinstance(kind, str) or len(kind) > 256 or not _TYPE.fullmatch(kind):
        raise Invalid(f"the DataType of attribute {name} must be String, Number or Binary, not {shown(kind)}")
    wanted = "BinaryValue" if kind.startswith("Binary") else "StringValue"
    if set(value) != {"DataType", wanted}:
        raise Invalid(f"attribute {name} of the DataType {kind} must have a {wanted} and nothing else")
    content = value[wanted]
    if wanted == "BinaryValue":
        if not isinstance(content, (bytes, bytearray, memoryview)) or not len(content):
            raise Invalid(f"the BinaryValue of attribute {name} must be bytes, and at least one")
        return {"DataType": kind, wanted: bytes(content)}
    content = text(content, f"attribute {name}")
    if kind.startswith("Number") and not _NUMBER.fullmatch(content):
        raise Invalid(f"attribute {name} is a Number, but {shown(content)} is none")
    return {"DataType": kind, wanted: content}


def identifier(value: object, name: str) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise Invalid(f"{name} must have 1 to 128 letters, digits or punctuation, and no spaces; not {shown(value)}")
    return value


def message_size(body: str, attributes: Attributes) -> int:
    """A message's size in bytes, as SQS counts it."""
    size = len(body.encode())
    for name, value in attributes.items():
        content = value.get("StringValue", value.get("BinaryValue", b""))
        size += len(name) + len(value["DataType"].encode())
        size += len(content.encode() if isinstance(content, str) else content)
    return size


def item_size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """An upper bound of an item's size in bytes, as DynamoDB counts it."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Mapping[str, Any]) -> int:
    kind, content = next(iter(value.items()))
    if kind == "M":
        return 3 + len(content) + item_size(content)
    return len(content.encode() if isinstance(content, str) else content) + 1
