"""Payloads and results are bytes here; the store keeps JSON. Text is a JSON string there, and can be read by anybody
who looks; what is not text is base64 in an object."""

from __future__ import annotations

from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Final

import msgspec

from hipq.errors import Invalid
from hipq.job.payload import SIZE_LIMIT

_SAFE: Final = SIZE_LIMIT // 6
"""Bytes that cannot become too many, whatever they are: a control character becomes six."""


def stored(payload: bytes) -> str:
    """As the store keeps it."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # which PostgreSQL cannot keep
        return f'{{"base64":"{b64encode(payload).decode()}"}}'
    return msgspec.json.encode(text).decode()


def given(data: str) -> bytes:
    """As it was. What is no payload, an answer's JSON, is its text."""
    value = msgspec.json.decode(data)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and len(value) == 1 and isinstance(text := value.get("base64"), str):
        with suppress(ValueError):  # somebody's own JSON, which happens to look like it
            return b64decode(text, validate=True)
    return data.encode()


def check(payload: bytes) -> None:
    if len(payload) > _SAFE and len(stored(payload).encode()) > SIZE_LIMIT:
        raise Invalid(f"a payload of {len(payload):,} bytes is too large: it is kept as JSON of {SIZE_LIMIT:,} at most")
