"""JSON that strangers send: what nobody can have meant is refused in one sentence."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

import msgspec

from hipq.daemon.http.reply import HttpError
from hipq.errors import Invalid
from hipq.job.payload import DEPTH_LIMIT, has_long_number

MOST_COMMAS: Final = 1_000_000
"""In one body, between so many values: each takes some hundred bytes while it is read."""
_Raw: Final = msgspec.json.Decoder(list[msgspec.Raw])


def strict(text: bytes | str, what: str = "the body") -> Any:
    """A value. No key twice, no NaN, no number that is infinite or has more than 64 bits, no half characters."""
    if isinstance(text, bytes):
        _check_size(text)
    try:
        value = json.loads(
            text.decode() if isinstance(text, bytes) else text,
            object_pairs_hook=lambda pairs: _once(pairs, what),
            parse_constant=lambda name: _no(f"{what} contains {name}, which JSON does not have"),
            parse_float=lambda digits: _float(digits, what),
            parse_int=lambda digits: _whole(digits, what),
        )
    except UnicodeDecodeError:
        raise Invalid(f"{what} is not UTF-8 text") from None
    except RecursionError:
        raise Invalid(f"{what} is nested deeper than {DEPTH_LIMIT} levels") from None
    except json.JSONDecodeError as error:
        raise Invalid(f"{what} is not JSON: {error}") from None
    _check_depth(value, what)
    compact(value, what)
    return value


def compact(value: Any, what: str = "the body") -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise Invalid(f"{what} contains a lone surrogate, which is not Unicode text") from None
    except RecursionError:
        raise Invalid(f"{what} is nested deeper than {DEPTH_LIMIT} levels") from None


def elements(body: bytes) -> list[bytes]:
    """What the jobs of a JSON body are: each element of an array, or the one value it is. A string is its characters,
    anything else is compact JSON."""
    _check_size(body)
    try:
        parts = [bytes(part) for part in _Raw.decode(body)]
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        parts = [body]
        if body.lstrip()[:1] == b"[":
            strict(body)  # an array that cannot be read: this says why
    return [_element(part) for part in parts]


def _check_size(body: bytes) -> None:
    if body.count(b",") > MOST_COMMAS:
        raise HttpError(413, f"a JSON body may have {MOST_COMMAS:,} commas, this one has more: send several, or lines")


def _element(text: bytes) -> bytes:
    """Most come as compact as they are to be, and then there is nothing wrong with them: read and written again they
    are the same."""
    if text.count(b"[") + text.count(b"{") < DEPTH_LIMIT and not has_long_number(text):
        try:
            value = msgspec.json.decode(text)
            if isinstance(value, str):
                return value.encode()
            if msgspec.json.encode(value) == text:
                return text
        except (msgspec.DecodeError, UnicodeError, OverflowError):
            pass
    value = strict(text)
    return value.encode() if isinstance(value, str) else compact(value)


def _once(pairs: list[tuple[str, Any]], what: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        _no(f"{what} has the same key twice in one object")
    return found


def _float(digits: str, what: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _no(f"{what} contains a number that is too large: {digits[:40]}")


def _whole(digits: str, what: str) -> int:
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 63:
        _no(f"{what} contains an integer outside 64 bits; send it as a string")
    return int(digits)


def _check_depth(value: Any, what: str) -> None:
    """Level by level: what is nested too deep is not to be followed by calls that are."""
    level = [value]
    for _ in range(DEPTH_LIMIT + 1):
        level = [inner for one in level if isinstance(one, (dict, list)) for inner in _inside(one)]
        if not level:
            return
    _no(f"{what} is nested deeper than {DEPTH_LIMIT} levels")


def _inside(value: dict[str, Any] | list[Any]) -> list[Any]:
    found = value.values() if isinstance(value, dict) else value
    return [one for one in found if isinstance(one, (dict, list))]


def _no(text: str) -> NoReturn:
    raise Invalid(text)
