"""What goes wrong, in one sentence on standard error, with what to do about it; and streams that take nothing more."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, TextIO

import click

from hipq.errors import Invalid
from hipq.errors import nearest as nearest
from hipq.observe.logs import escaped

_PASSWORD: Final = re.compile(r"(://[^:/@\s]*):[^\s\"']*@")
"""In a line of source that has the URL of a database in it."""
LIMIT: Final = 600
_ADVICE: Final = {
    r"password authentication failed|no password supplied": "check the user and the password in the URL",
    r'database "([^"]+)" does not exist': "make it first: createdb {}",
    r'role "([^"]+)" does not exist': "check the user in the URL",
    r"[Cc]onnection refused|No such file or directory.*socket": "is the server running there?",
    r"failed to resolve host|Name or service not known": "check the host in the URL",
    r"unable to open database file|cannot open .*: (?:No such|Permission)": "is its folder there, may you write to it?",
    r"attempt to write a readonly database": "check who may write to the file and its folder",
    r"file is not a database": "check the path: another program made this file",
}


def complain(text: str, status: int, more: str = "") -> int:
    """Say it on one line, not too long, and hand back the exit status that goes with it."""
    text = escaped(" ".join(text.split()))
    note(f"hipq: {text if len(text) <= LIMIT else text[:LIMIT] + '…'}{more}")
    return status


class ImportFailed(Invalid):
    """Importing a program's module raised."""


def show_trace(error: BaseException) -> None:
    """Where somebody's module raised when it was imported, from its own lines on: line by line, as it is in no log."""
    if not isinstance(error, ImportFailed) or error.__cause__ is None:
        return
    cause, ours = error.__cause__, ("<frozen importlib", importlib.__file__, os.path.dirname(__file__))
    frame = cause.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(ours):
        frame = frame.tb_next
    for line in "".join(traceback.format_exception(type(cause), cause, frame)).splitlines():
        note(_PASSWORD.sub(r"\1:…@", escaped(line)))


def note(text: str) -> None:
    """A line on standard error. If that is full or gone, the work itself goes on."""
    with suppress(OSError):
        click.echo(text, err=True)


def advised(text: str) -> str:
    """An error that comes from elsewhere and only says what is wrong, with what to do about it, if that is known."""
    for pattern, advice in _ADVICE.items():
        if match := re.search(pattern, text):
            return f"{text.rstrip('.')}; {advice.format(*match.groups())}"
    return text


def others(name: str, there: Iterable[str]) -> str:
    """The end of a sentence about a name that is not there: the one that may be meant, or those there are."""
    there = sorted(set(there))
    return nearest(name, there) or f"; there are {', '.join(there) or 'none'}"


def is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and bool(stream.isatty())  # None: it was closed before we began


def open_closed_ones() -> None:
    """Let standard streams that a shell has closed be /dev/null: otherwise the next file that is opened, a database
    perhaps, gets their number, and what is printed goes into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def give_up(stream: TextIO) -> None:
    """Let go of a stream that takes nothing more: what is left for it would be tried again at exit, and fail again."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
