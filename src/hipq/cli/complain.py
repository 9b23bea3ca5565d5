"""What goes wrong, in one sentence on standard error."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Final

import click

from hipq.observe.logs import escaped

LIMIT: Final = 600


def complain(text: str, status: int, more: str = "") -> int:
    """Say it on one line, not too long, and hand back the exit status that goes with it."""
    text = escaped(" ".join(text.split()))
    note(f"hipq: {text if len(text) <= LIMIT else text[:LIMIT] + '…'}{more}")
    return status


def note(text: str) -> None:
    """A line on standard error. If that is full or gone, the work itself goes on."""
    with suppress(OSError):
        click.echo(text, err=True)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that nobody knows: the one that may be meant."""
    near = get_close_matches(name[:100], list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and bool(stream.isatty())  # None: it was closed before we began
