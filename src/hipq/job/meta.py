"""The column `meta`: what the engine is told about a job when it is added, beside its other columns, as a JSON object.

It never changes: whoever copies or moves a job takes its `meta` along. What happened to a job is in `history`, which is
for people: no decision depends on that, and it may be shortened at any time.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec.structs import replace

PLAIN: Final = "{}"
"""The `meta` of most jobs."""


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    parent: int = 0
    """The job whose handler added this one. Written first, since the indexes `_parent` find it there."""
    then: str = ""
    """The type of the job that a daemon adds with the result of this one, once this one has succeeded."""
    trace: str = ""
    """The traceparent of the span in which the job was added."""
    retry: dict[str, Any] | None = None
    """The job's own retry strategy, which goes before that of its type: see `hipq.job.retries`."""

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()


_PLAIN: Final = Meta()
_decoder = msgspec.json.Decoder(Meta)
_TRACEPARENT: Final = re.compile("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def load(text: str) -> Meta:
    """The `meta` of a row. Raises msgspec.DecodeError if another program has written what this one cannot read."""
    return _PLAIN if text == PLAIN else _decoder.decode(text)


def with_parent(text: str, parent: int) -> str:
    """The `meta` of a job that another one adds; 0 = none does. Parts that cannot be read are kept as they are."""
    try:
        found = replace(load(text), parent=parent)
    except msgspec.DecodeError:
        return text
    return PLAIN if found == _PLAIN else found.dump()


def is_traceparent(text: str) -> bool:
    """Whether the text names a span as W3C's Trace Context does, in the version that all know."""
    return _TRACEPARENT.fullmatch(text) is not None


def to_show(text: str) -> Meta:
    """The `meta` of a row, to be shown: empty where another program wrote what cannot be read."""
    try:
        return load(text)
    except msgspec.DecodeError:
        return _PLAIN


def traceparent_in(text: str) -> str:
    """The span in which a job was added, if that was traced; else ""."""
    found = to_show(text).trace
    return found if is_traceparent(found) else ""
