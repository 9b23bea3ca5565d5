"""`hipq top`: what goes on in a database now, drawn again every few seconds."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import click

from hipq.cli.commands import asked, command
from hipq.cli.complain import is_terminal
from hipq.cli.frame import TITLES, Frame, frame_of, lines_of
from hipq.cli.inputs import Duration
from hipq.cli.show import print_json
from hipq.cli.target import AppCommand, Target
from hipq.errors import HipqError, Invalid
from hipq.observe.logs import escaped
from hipq.signals import on_stop
from hipq.stores.protocols import Store
from hipq.terminal import Picture, can_draw, fitted

_LEAST: Final = 0.2


@command(
    "top",
    "hipq top shop:app",
    "hipq top --db postgresql://host/database --interval 5",
    "hipq top shop:app | head -20",
    cls=AppCommand,
    short_help="Watch queues, limits, running jobs, answers and engines.",
)
@click.option(
    "--interval", type=Duration("interval", _LEAST), default="2", show_default=True, help="Seconds between two looks."
)
def top(target: Target, interval: float) -> None:
    """Watch queues, limits, running jobs, answers and engines, until q or Ctrl-C. Without a terminal, and with --json,
    look once. Counts stop at 10,000, so that a look costs the database little however many jobs it has."""
    apps = target.apps
    if not apps:
        raise Invalid("there are no queues in this database yet")
    store, app = apps[0].store, apps[0].name if target.app else ""
    if asked("json"):
        print_json(frame_of(store, app)._asdict())
    elif is_terminal(sys.stdin) and can_draw(sys.stdout):
        _live(store, app, interval)
    else:
        for line in lines_of(frame_of(store, app)):
            click.echo(line)


def _live(store: Store, app: str, interval: float) -> None:
    frame, missed = frame_of(store, app), _Away()
    with suppress(_Over), _keys() as wait, Picture(sys.stdout, whole=True) as picture:
        while True:
            picture.draw(_drawn(picture.size, frame, missed.said()))
            wait(interval)
            try:
                frame = frame_of(store, app)
                missed.over()
            except HipqError as error:
                missed.because(error)


class _Away:
    """Why the last look failed, and since when they do."""

    def __init__(self) -> None:
        self._error, self._since = "", 0.0

    def because(self, error: HipqError) -> None:
        self._since = self._since or time.monotonic()
        self._error = str(error)

    def over(self) -> None:
        self._error, self._since = "", 0.0

    def said(self) -> str:
        seconds = time.monotonic() - self._since
        return f"no look for {seconds:.0f} s: {escaped(self._error)}" if self._error else ""


class _Over(Exception):
    """q, or a signal."""


@contextmanager
def _keys() -> Iterator[Callable[[float], None]]:
    """Until the end of the block, however it is left, keys come one by one and are not shown. What is handed out waits
    for so many seconds, and raises when the user wants no more."""
    terminal, is_over = sys.stdin.fileno(), False
    before = termios.tcgetattr(terminal)

    def end() -> None:
        nonlocal is_over
        if not is_over:  # a second one must not keep the terminal from being restored
            is_over = True
            raise _Over

    def wait(seconds: float) -> None:
        until = time.monotonic() + seconds
        while select.select([terminal], [], [], max(until - time.monotonic(), 0))[0]:
            if (typed := os.read(terminal, 100)) in (b"", b"\x04") or b"q" in typed.lower():
                end()

    on_stop(end)
    tty.setcbreak(terminal)
    try:
        yield wait
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _drawn(size: os.terminal_size, frame: Frame, trouble: str) -> list[str]:
    """As much as there is room for."""
    head = click.style(fitted(f"hipq top  {frame.where}  {frame.at:%H:%M:%SZ}", size.columns), bold=True)
    heads = [head, *([click.style(fitted(trouble, size.columns), fg="red", bold=True)] if trouble else [])]
    lines = [fitted(line, size.columns) for line in lines_of(frame, size.columns, size.lines - len(heads))]
    return [*heads, *(click.style(line, bold=True) if line in TITLES else line for line in lines)]
