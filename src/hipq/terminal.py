"""What is drawn on a terminal: lines, each time over those before, and bars."""

from __future__ import annotations

import math
import os
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final, TextIO

import click

_HIDE: Final = "\x1b[?25l"
_SHOW: Final = "\x1b[?25h"
_ENTER: Final = "\x1b[?1049h"
_LEAVE: Final = "\x1b[?1049l"
_ERASE: Final = "\x1b[2K"
_UP: Final = "\x1b[1A"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def can_draw(stream: TextIO | None) -> bool:
    """Whether it is a terminal that can move its cursor."""
    if stream is None or stream.closed or not stream.isatty():
        return False
    return os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


class Picture:
    """Until the end of its block, whatever is drawn replaces what was drawn before, and the cursor is hidden. Nothing
    of it is left in the end. With `whole` it has a screen of its own, and the one before comes back."""

    def __init__(self, stream: TextIO, *, whole: bool = False) -> None:
        self._stream, self._whole = stream, whole
        self._is_plain = bool(os.environ.get("NO_COLOR"))
        self._height = 0

    @property
    def size(self) -> os.terminal_size:
        with suppress(OSError, ValueError):
            found = os.get_terminal_size(self._stream.fileno())
            if found.columns and found.lines:
                return found
        return os.terminal_size((80, 24))

    def __enter__(self) -> Picture:
        self._write(_ENTER * self._whole + _HIDE)
        return self

    def draw(self, lines: Sequence[str]) -> None:
        """The lines must fit the terminal: what is longer or higher cannot be drawn over."""
        begin = "\x1b[H\x1b[2J" if self._whole else self._erased()
        self._height = len(lines)
        self._write(begin + "\r\n".join(click.unstyle(line) if self._is_plain else line for line in lines))

    def __exit__(self, *_: object) -> None:
        self._write(_SHOW + (_LEAVE if self._whole else self._erased()))

    def _erased(self) -> str:
        return "\r" + (_ERASE + _UP) * (self._height - 1) + _ERASE

    def _write(self, text: str) -> None:
        encoding = self._stream.encoding or "ascii"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except OSError:  # the terminal has been closed
            _let_go(self._stream)
            raise


def _let_go(stream: TextIO) -> None:
    """What is left in its buffer goes nowhere: it would be an error once more when the process ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def fitted(text: str, width: int) -> str:
    """As much of a line as there is room for; wide characters take two places."""
    places = list(accumulate(map(_places, text)))
    if not places or places[-1] <= width:
        return text
    return text[: bisect_right(places, width - 1)] + "…"


def _places(character: str) -> int:
    return 0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")


class Ink(str):
    """The characters of a bar, as the encoding of the output allows."""

    @classmethod
    def of(cls, encoding: str | None) -> Ink:
        return cls("█" if (encoding or "").lower().replace("-", "").startswith("utf") else "#")

    def bar(self, value: float, most: float, width: int) -> str:
        """A bar in proportion to the value; empty only if the value is 0."""
        length = value / most * width if most > 0 else 0.0
        if self == "#":
            return "#" * (max(round(length), 1) if value > 0 else 0)
        whole, eighths = divmod(max(math.floor(length * 8), 1) if value > 0 else 0, 8)
        return "█" * whole + _EIGHTHS[eighths].strip()
