"""Payloads, results and answers as pages show them: pretty-printed, masked, cut; and whole, to be downloaded."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from hipq.dashboard.masks import as_json, masked
from hipq.dashboard.visit import Refused, Reply

SHOWN: Final = 64 << 10
"""Characters of a body that a page shows."""
READ: Final = 4
"""Times as many are read to be printed prettily. To read more would make the page slow."""


class Body(NamedTuple):
    """What a page shows of a body."""

    text: str
    size: int
    """Characters of all of it."""
    note: str = ""
    """Why it is not all there; "" = it is."""


def shown(stored: str, names: Collection[str], *, of_daemon: bool = False, most: int = SHOWN) -> Body:
    """A body as a page shows it. `names`: the fields whose values nobody sees. `of_daemon`: a daemon has stored bytes
    as JSON (`hipq.daemon.payloads`)."""
    size = len(stored)
    if size > READ * most and names:
        return Body("", size, f"Its {size:,} characters are too many to be masked here.")
    if size > READ * most:
        return Body(stored[:most], size, "This is its beginning, as it is stored.")
    content = _content(stored) if of_daemon else stored
    if isinstance(content, bytes):
        return Body("", size, f"It is {len(content):,} bytes that are not text.")
    text = _pretty(content, names)
    if len(text) <= most:
        return Body(text, size)
    return Body(text[:most], size, "This is its beginning.")


def download(name: str, stored: str, names: Collection[str], *, of_daemon: bool = False) -> Reply:
    """All of a body, as a file that the browser keeps and does not show."""
    content = _content(stored) if of_daemon else stored
    if isinstance(content, bytes) and names:
        raise Refused(403, "it is not text, so nobody can tell what is to be masked in it")
    kind, ending = "application/octet-stream", "bin"
    if isinstance(content, str):
        is_json = _is_json(content)
        kind, ending = ("application/json", "json") if is_json else ("text/plain; charset=utf-8", "txt")
        content = _hidden(content, names).encode("utf-8", "replace")
    kept = (
        ("content-disposition", f'attachment; filename="{name}.{ending}"'),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
    )
    return Reply(200, content, kind, kept)


def _content(stored: str) -> str | bytes:
    """What somebody gave a daemon: text, or bytes that are none. An answer's JSON is its text."""
    try:
        value = msgspec.json.decode(stored)
    except msgspec.DecodeError:
        return stored
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        with suppress(ValueError):  # somebody's own JSON, which happens to look like it
            return b64decode(value["base64"], validate=True)
    return stored


def _hidden(text: str, names: Collection[str]) -> str:
    """A text of JSON, or another one, without the values that nobody sees."""
    if not names:
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return str(masked(text, names))
    return as_json(text, value, masked(value, names), names)


def _pretty(text: str, names: Collection[str]) -> str:
    """With line breaks, if it is JSON; names, numbers and their order stay as they were written."""
    text = _hidden(text, names)
    return msgspec.json.format(text, indent=2) if _is_json(text) else text


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
