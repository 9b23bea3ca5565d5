"""How far a long command is, on standard error; and the question before something is destroyed."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import click

from hipq.cli.commands import asked
from hipq.cli.complain import is_terminal, note
from hipq.errors import HipqError
from hipq.terminal import Ink, Picture, can_draw, fitted

EVERY: Final = 5.0
"""Seconds between two lines where there is no terminal; what takes less says nothing there."""
_REDRAWN: Final = 0.1
"""Seconds between two drawings."""
_BAR: Final = 40


class Bar:
    """How far something is. This one keeps it to itself: for --json and --quiet."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what, self.done = what, 0
        self._total = total

    @property
    def total(self) -> int | None:
        """How much there is to do in all; None = not known. It may become known, or grow, on the way."""
        return self._total

    @total.setter
    def total(self, total: int | None) -> None:
        self._total = total
        self._moved()

    def advance(self, count: int = 1) -> None:
        """So much more is done."""
        self.done += count
        self._moved()

    def _moved(self) -> None:
        """Tell those who look."""

    def close(self) -> None:
        """There is no more to tell."""


class Lines(Bar):
    """For a file or a pipe: a line every few seconds, and the last one if there was any."""

    def __init__(self, what: str, total: int | None) -> None:
        super().__init__(what, total)
        self._said, self._told = time.monotonic(), -1

    def _moved(self) -> None:
        if time.monotonic() - self._said >= EVERY:
            self._say()

    def close(self) -> None:
        if self._told not in (-1, self.done):
            self._say()

    def _say(self) -> None:
        self._said, self._told = time.monotonic(), self.done
        part = f" of {self.total:,} ({self.done / self.total:.0%})" if self.total else ""
        note(f"{self.what}: {self.done:,}{part}")


class Drawn(Bar):
    """For a terminal: one line that is drawn again and again, and taken away at the end."""

    def __init__(self, what: str, total: int | None) -> None:
        super().__init__(what, total)
        self._began = time.monotonic()
        self._drawn = -math.inf
        self._ink = Ink.of(sys.stderr.encoding)
        self._picture = Picture(sys.stderr)
        self._picture.__enter__()
        self._moved()

    def _moved(self) -> None:
        if time.monotonic() - self._drawn >= _REDRAWN:
            self._draw()

    def close(self) -> None:
        self._draw()  # whoever keeps what is shown sees the last count
        self._picture.__exit__()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._picture.draw([fitted(self._line(), self._picture.size.columns - 1)])

    def _line(self) -> str:
        if not self.total:
            return f"{self.what} {self.done:,}"
        bar = self._ink.bar(min(self.done, self.total), self.total, _BAR)
        left = (self._drawn - self._began) * max(self.total - self.done, 0) / self.done if self.done else math.inf
        until = f" {timedelta(seconds=round(left))}" if left < math.inf else ""
        return f"{self.what} {bar:<{_BAR}} {self.done:,}/{self.total:,}{until}"


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Bar]:
    """`with progress("copying", 5000) as bar: bar.advance(100)`. `total` may be unknown. With --json or --quiet nothing
    is said."""
    kind = Bar if quiet or asked("quiet") or asked("json") else Drawn if can_draw(sys.stderr) else Lines
    bar = kind(what, total)
    try:
        yield bar
    finally:
        bar.close()  # also when it fails: the complaint begins on an empty line


def confirm(question: str) -> None:
    """Ask before something is destroyed, unless --yes was given. Where nobody can be asked, --yes must be."""
    if asked("yes"):
        return
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise click.UsageError(f"{question} There is no terminal to ask on: say --yes", click.get_current_context())
    if not click.confirm(question, default=False, err=True):
        raise HipqError("nothing was changed")
