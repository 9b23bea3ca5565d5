"""The body of an `add`, as payloads: lines, the elements of a JSON array, or byte-counted binary."""

from __future__ import annotations

from typing import Final

from hipq.daemon.http.reply import HttpError
from hipq.daemon.http.strict_json import elements
from hipq.errors import Invalid

JSON_KIND: Final = "application/json"
BINARY_KIND: Final = "application/octet-stream"


def payloads(kind: str, body: bytes, most: int) -> list[bytes]:
    """One for each job, in order. `kind` is the Content-Type; what is neither JSON nor binary is lines."""
    if not body:
        raise Invalid("the body is empty: there is no job in it")
    if kind == JSON_KIND or kind.endswith("+json"):
        found = elements(body)
        if not found:
            raise Invalid("the array is empty: there is no job in it")
    elif kind == BINARY_KIND:
        found = counted(body, most)
    elif kind.startswith("multipart/"):
        raise HttpError(415, "send payloads as lines, as a JSON array, or byte-counted as application/octet-stream")
    else:
        found = lines(body, most)
    if len(found) > most:
        raise too_many(most)
    return found


def lines(body: bytes, most: int) -> list[bytes]:
    """Each line is a payload; the newline at the end of the last may be missing."""
    if body.count(b"\n") > most:
        raise too_many(most)
    found = body.split(b"\n")
    if not found[-1]:
        found.pop()
    return found


def counted(body: bytes, most: int) -> list[bytes]:
    """`<n>` newline, n bytes, newline; and so on."""
    found: list[bytes] = []
    at = 0
    while at < len(body):
        end = body.find(b"\n", at, at + 12)
        digits = body[at:end] if end >= 0 else b""
        if not digits.isdigit():
            raise Invalid(f"payload {len(found) + 1} does not begin with its number of bytes and a newline")
        start, at = end + 1, end + 1 + int(digits)
        if body[at : at + 1] != b"\n":
            raise Invalid(f"payload {len(found) + 1} has not {int(digits)} bytes and a newline behind them")
        found.append(body[start:at])
        at += 1
        if len(found) > most:
            raise too_many(most)
    return found


def too_many(most: int) -> HttpError:
    return HttpError(413, f"a request may have {most:,} jobs, and this one has more")
