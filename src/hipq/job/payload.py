"""Payloads and results are JSON, checked before anything is acknowledged. A value that would come back changed is
refused, and what one store would refuse, all refuse."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import msgspec

from hipq.errors import Invalid
from hipq.job.codec import ANY, Codec
from hipq.job.same import check_same, culprit

DEPTH_LIMIT: Final = 100
SIZE_LIMIT: Final = 16 << 20
INT_MAX: Final = (1 << 63) - 1

_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)


def has_long_number(text: bytes) -> bool:
    """Whether JSON has 19 digits in a row: only then a number may need more than 64 bits. Every payload is asked this,
    and a pattern would take four times as long."""
    return b"0" * 19 in text.translate(_AS_ZEROS)


def encode(data: Any, what: str = "data", codec: Codec = ANY) -> str:
    """The JSON of this value. Invalid, in one sentence, if it has none; msgspec.ValidationError, if it does not fit the
    type of the codec.

    What a lenient codec writes is read back, as whoever gets the data will read it. If something else comes out, the
    value is searched for the difference.
    """
    try:
        text = codec.encode(data)
    except msgspec.ValidationError:
        raise
    except UnicodeEncodeError:
        raise Invalid(f"{what} contains a lone surrogate, which is not Unicode text") from None
    except RecursionError:
        raise Invalid(f"{what} is nested deeper than {DEPTH_LIMIT} levels") from None
    except OverflowError:
        raise Invalid(f"{what} contains an integer outside 64 bits; send it as a string") from None
    except (TypeError, ValueError) as error:
        if "digits" in str(error):  # Python will not even print it
            raise Invalid(f"{what} contains an integer outside 64 bits; send it as a string") from None
        raise Invalid(f"{culprit(data, what)} is not JSON: {error}") from None
    if len(text) > SIZE_LIMIT:
        raise Invalid(f"{what} has {len(text):,} bytes of JSON; the limit is {SIZE_LIMIT:,}")
    if not codec.is_lenient:
        data = msgspec.json.decode(text)
    if text.count(b"[") + text.count(b"{") > DEPTH_LIMIT or b"\\u0000" in text or has_long_number(text):
        _walk(data, what, 0)
    if codec.is_lenient:
        _check_back(data, text, what, codec)
    return text.decode()


def _check_back(data: Any, text: bytes, what: str, codec: Codec) -> None:
    """Refuse data that would be read back as another value."""
    try:
        back = codec.decode(text)
    except msgspec.ValidationError:
        _walk(data, what, 0)  # which says it better, if it is NaN
        raise
    except (msgspec.DecodeError, UnicodeError):
        raise Invalid(f"{what} contains raw text that is not JSON") from None
    if data != back:
        _walk(data, what, 0)
        check_same(data, back, what)


def _walk(value: Any, what: str, depth: int) -> None:
    if depth >= DEPTH_LIMIT and isinstance(value, (dict, list, tuple, set, frozenset)):
        raise Invalid(f"{what} is nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, str):
        if "\x00" in value:
            raise Invalid(f"{what} contains a NUL character, which PostgreSQL cannot store")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Invalid(f"{what} contains {value}, which JSON does not have")
    elif isinstance(value, int):
        if not -INT_MAX - 1 <= value <= INT_MAX:
            raise Invalid(f"{what} contains an integer outside 64 bits; send it as a string")
    elif isinstance(value, dict):
        for name, item in value.items():
            _walk(name, what, depth)
            _walk(item, what, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            _walk(item, what, depth + 1)
    elif value is not None:
        _walk(_plain(value), what, depth)


def _plain(value: Any) -> Any:
    """What to write in place of a value that JSON does not have."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):  # a msgspec.Raw
        return None


def parse(text: str | bytes, what: str = "data") -> Any:
    """A value from JSON that a user typed. Stricter than a decoder: a repeated key is refused, since nobody means
    it."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            raise Invalid(f"{what} is not UTF-8 text") from None

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise Invalid(f"{what} has the same key twice in one object")
        return found

    try:
        value = json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise Invalid(f"{what} is nested deeper than {DEPTH_LIMIT} levels") from None
    except json.JSONDecodeError as error:
        raise Invalid(f"{what} is not JSON: {error}") from None
    except ValueError as error:  # more digits than Python converts
        if isinstance(error, Invalid):
            raise
        raise Invalid(f"{what} contains an integer outside 64 bits; send it as a string") from None
    encode(value, what)
    return value


def decode(text: str) -> Any:
    return msgspec.json.decode(text)
