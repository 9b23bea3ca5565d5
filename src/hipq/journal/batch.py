"""Jobs that came together, and how they look on disk. Pure: no file, no clock.

    #:Batch date=2026-06-30T01:17:17.123456Z,bytes=14,jobtype=acme-resize.v2,first=77,count=3,form=lines,head=5ad1c0ff,sum=0d15ea5e
    <body>
    #:EndBatch

The sums are CRC-32 over the segment's salt, the batch's offset in its file and the header; `sum` covers the body too. A
program that posts jobs knows neither salt nor offset: a batch written inside a payload is never taken for one.
"""  # noqa: E501

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zlib import crc32

import msgspec

from hipq.errors import Invalid, shown
from hipq.job.names import whole
from hipq.job.when import LATEST, moment

MARK: Final = b"#:Batch "
END: Final = b"#:EndBatch\n"
HEADER_MOST: Final = 128 << 10
"""Bytes of the longest header."""

_NAME_MOST: Final = 200
_OPTIONS_MOST: Final = 64 << 10
_BODY_MOST: Final = 10**12 - 1
_PAYLOAD_EXTRA: Final = 14
_HEADER_EXTRA: Final = 220
_ID_MOST: Final = (1 << 63) - 1
_EPOCH: Final = datetime(1970, 1, 1)
_NO_OPTIONS: Final = "{}"
_BYTES: Final = {bytes}
_JOBTYPE: Final = re.compile(r"[A-Za-z0-9_.-]+")
_HEADER: Final = re.compile(
    rb"#:Batch date=(?P<date>[0-9T:.-]{26}Z),bytes=(?P<bytes>[0-9]{1,12}),"
    rb"jobtype=(?P<tenant>[^,\n-]+)-(?P<jobtype>[A-Za-z0-9_.-]+),first=(?P<first>[0-9]{1,19}),"
    rb"count=(?P<count>[0-9]{1,12}),form=(?P<form>lines|counted)(?:,options=(?P<options>[A-Za-z0-9_=-]+))?"
    rb",head=(?P<head>[0-9a-f]{8}),sum=(?P<sum>[0-9a-f]{8})\n"
)
_FIELDS: Final = (b"date=", b"bytes=", b"jobtype=", b"first=", b"count=", b"form=", b"options=", b"head=", b"sum=")
_BEFORE_HEAD: Final = len(b",head=")
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")

Header = re.Match[bytes]
"""A header as it was read, with a correct `head` sum."""


class Batch(msgspec.Struct, frozen=True):
    """Jobs of one type that were posted together."""

    tenant: str
    jobtype: str
    first: int
    """The number of the first job; the others follow. The store makes ids of these numbers."""
    payloads: tuple[bytes, ...]
    date: int
    """When the jobs arrived, in microseconds since 1970."""
    options: str = _NO_OPTIONS
    """The jobs' other options, as a JSON object that the journal does not read."""


def check(batch: Batch) -> int:
    """Refuse a batch that could not be read back as it is; returns the bytes it takes at most."""
    options, payloads = batch.options, batch.payloads
    names = _check_names(batch.tenant, batch.jobtype)
    if not payloads:
        raise Invalid("a batch must have at least one payload")
    whole(batch.first, "the first id of a batch", 0, _ID_MOST - len(payloads) + 1)
    whole(batch.date, "the date of a batch", 0, LATEST)
    if options != _NO_OPTIONS and (not options or len(options) > _OPTIONS_MOST or not options.isascii()):
        raise Invalid(f"the options of a batch must be 1 to {_OPTIONS_MOST:,} ASCII characters, not {shown(options)}")
    if set(map(type, payloads)) != _BYTES:
        raise Invalid("the payloads of a batch must be bytes")
    size = sum(map(len, payloads)) + _PAYLOAD_EXTRA * len(payloads)
    if size > _BODY_MOST:
        raise Invalid("a batch has too many bytes")
    return size + _HEADER_EXTRA + names + 4 * len(options) // 3


@lru_cache(maxsize=10_000)  # the same names occur again and again
def _check_names(tenant: str, jobtype: str) -> int:
    """Check the names; returns the bytes they take at most."""
    if not 1 <= len(tenant) <= _NAME_MOST or not tenant.isprintable() or "-" in tenant or "," in tenant:
        raise Invalid(f"a tenant must have 1 to 200 printable characters and no '-' or ',', not {shown(tenant)}")
    if len(jobtype) > _NAME_MOST or not _JOBTYPE.fullmatch(jobtype):
        raise Invalid(f"a jobtype must be 1 to 200 letters, digits, '_', '.' or '-', not {shown(jobtype)}")
    return 4 * len(tenant) + len(jobtype)


# -- writing ---------------------------------------------------------------------------------------------------------
def encode(batch: Batch, salt: int, offset: int) -> bytes:
    """The batch as it stands at `offset` of a segment. `salt` is `salted` of the segment's salt."""
    form, body = _body(batch.payloads)
    text = (
        f"#:Batch date={_iso(batch.date)},bytes={len(body)},jobtype={batch.tenant}-{batch.jobtype},"
        f"first={batch.first},count={len(batch.payloads)},form={form}"
    )
    if batch.options != _NO_OPTIONS:
        text += f",options={urlsafe_b64encode(batch.options.encode()).decode()}"
    header = text.encode()
    head = _head(header, salt, offset)
    return b"%b,head=%08x,sum=%08x\n%b%b" % (header, head, crc32(body, head), body, END)


def salted(salt: str) -> int:
    """The initial value of a segment's sums."""
    return crc32(bytes.fromhex(salt))


def _head(header: bytes, salt: int, offset: int) -> int:
    return crc32(header, crc32(offset.to_bytes(8, "big"), salt))


def _body(payloads: tuple[bytes, ...]) -> tuple[str, bytes]:
    """The body's form and bytes: lines, which people can read, or byte-counted if a payload has a newline in it."""
    body = b"\n".join(payloads) + b"\n"
    if body.count(b"\n") == len(payloads):
        return "lines", body
    return "counted", b"".join([b"%d\n%b\n" % (len(payload), payload) for payload in payloads])


def _iso(date: int) -> str:
    return f"{_iso_second(date // 1_000_000)}.{date % 1_000_000:06d}Z"


@lru_cache(maxsize=64)  # thousands of batches have the same date
def _iso_second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat()


# -- reading ---------------------------------------------------------------------------------------------------------
def header_at(data: bytes, start: int, salt: int, offset: int) -> Header | None:
    """The header at `start` of `data`, at `offset` in its segment; None if there is none, or its sum is wrong."""
    match = _HEADER.match(data, start)
    if match is None or int(match["head"], 16) != _head(data[start : match.start("head") - _BEFORE_HEAD], salt, offset):
        return None
    return match


def body_is_right(header: Header, body: bytes) -> bool:
    return crc32(body, int(header["head"], 16)) == int(header["sum"], 16)


def begins_a_header(data: bytes) -> bool:
    """Whether this may be the beginning of a header whose end was never written."""
    if data[: len(MARK)] != MARK[: len(data)] or len(data) >= HEADER_MOST or has_control(data):
        return False
    *whole, last = data[len(MARK) :].split(b",")
    for names in (_FIELDS, _FIELDS[:-3] + _FIELDS[-2:]):  # with options, or without
        if len(whole) < len(names) and all(map(bytes.startswith, whole, names)):
            name = names[len(whole)]
            if last.startswith(name) or name.startswith(last):
                return True
    return False


def has_control(data: bytes) -> bool:
    """Whether there are control characters: no line of the journal has any before its end."""
    return _CONTROL.search(data) is not None


def decode(header: Header, body: bytes) -> Batch:
    """The batch of a header and a body whose sums are correct. ValueError if `encode` did not write it."""
    options, payloads = header["options"], _payloads(header, body)
    if len(payloads) != int(header["count"]):
        raise ValueError("another number of payloads")
    return Batch(
        header["tenant"].decode(),
        header["jobtype"].decode(),
        int(header["first"]),
        payloads,
        moment(datetime.fromisoformat(header["date"].decode())),
        urlsafe_b64decode(options).decode() if options else _NO_OPTIONS,
    )


def _payloads(header: Header, body: bytes) -> tuple[bytes, ...]:
    if header["form"] == b"lines":
        return tuple(body.split(b"\n")[:-1])
    found: list[bytes] = []
    at = 0
    while at < len(body):
        start = body.index(b"\n", at) + 1
        at = start + int(body[at : start - 1])
        found.append(body[start:at])
        at += 1
    return tuple(found)
