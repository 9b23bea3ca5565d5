"""SIGINT and SIGTERM, as often as somebody meant them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Final

TOGETHER: Final = 0.2
"""Seconds within which another one is the same: `timeout` signals a process and then its whole group, a terminal the
supervisor and its workers, who hear it from that once more. Taken for two, they would not let handlers finish."""


def each_meant(stop: Callable[[], None]) -> Callable[..., None]:
    """To be called for every signal that comes: calls `stop` for those that count. In a process that was forked later,
    as by a handler, there is nothing to stop: there a signal does what it does by default."""
    last, here = -TOGETHER, os.getpid()

    def heard(number: int = signal.SIGTERM, *_: object) -> None:
        nonlocal last
        if os.getpid() != here:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        now = time.monotonic()
        if now - last >= TOGETHER:
            last = now
            stop()

    return heard


def on_stop(stop: Callable[[], None]) -> Callable[..., None]:
    """Call `stop` for each SIGINT or SIGTERM that counts; returns what hears them."""
    heard = each_meant(stop)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heard)
    return heard


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def how_ended(code: int) -> str:
    """How a process ended, in words, from its exit code as `subprocess` has it."""
    return f"was killed by {signal_name(-code)}" if code < 0 else f"exited with status {code}"
