"""Payloads are bytes to their tenants and JSON in the store: whatever they are made of, they come back as they were."""

from __future__ import annotations

import random

import msgspec
import pytest

from hipq.daemon import payloads
from hipq.errors import Invalid
from hipq.job.payload import SIZE_LIMIT

ODD = [
    b"", b"x", b"\n", b" ", b"{}", b'{"a": 1}', b"null", b'"', b"\\", b"\x00", b"a\x00b", b"\xff\xfe",
    bytes(range(256)),
    "grün 漢字 🎈".encode(), "\u2028\ufeff\ufffd".encode(), b"\xed\xa0\x80", b"\x1b[31m", b'{"base64":"AAAA"}',
    b'{"base64":"?"}', "e\u0301".encode(), b"\r\n\t",
]  # fmt: skip


@pytest.mark.parametrize("payload", ODD)
def test_a_payload_comes_back_byte_for_byte(payload: bytes) -> None:
    text = payloads.stored(payload)
    assert "\0" not in text
    assert "\\u0000" not in text  # PostgreSQL can keep neither
    assert payloads.given(text) == payload
    msgspec.json.decode(text)


def test_random_bytes_come_back() -> None:
    chance = random.Random(3)
    for _ in range(500):
        payload = chance.randbytes(chance.randrange(60))
        assert payloads.given(payloads.stored(payload)) == payload


def test_text_can_be_read_in_the_store() -> None:
    assert payloads.stored("grün".encode()) == '"grün"'


@pytest.mark.parametrize(
    "data", ["{}", "[1,2]", "null", "7", '{"base64":1}', '{"base64":"?!"}', '{"base64":"A"}', '{"base64":"AAAA","x":1}']
)
def test_json_that_is_no_payload_is_its_text(data: str) -> None:
    assert payloads.given(data) == data.encode()


@pytest.mark.parametrize("letter", [b"a", b"\x01", b"\xff", "漢".encode()])
def test_what_would_be_too_large_in_the_store_is_refused(letter: bytes) -> None:
    """However it is kept: a control character becomes six, and what is no text a third more."""
    kept = (len(payloads.stored(letter * 600).encode()) - len(payloads.stored(letter * 300).encode())) / 300
    payloads.check(letter * int((SIZE_LIMIT - 100) / kept))
    with pytest.raises(Invalid, match="is too large"):
        payloads.check(letter * (int(SIZE_LIMIT / kept) + 100))
