"""Standard input, output and error, which a shell may have closed, or sent to a disk that is full."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def open_closed_ones() -> None:
    """Let those that are closed be /dev/null: otherwise the next file that is opened, a database perhaps, gets their
    number, and what is printed goes into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def give_up(stream: TextIO) -> None:
    """If it takes nothing more: what is left for it would be tried again at exit, and fail again."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
