"""The folders that a daemon uses, none of which a handler may see."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator

from hipq import config
from hipq.errors import Invalid
from hipq.sandbox.interpreters import cannot_hide
from hipq.sandbox.settings import ContextSettings

_SQLITE = "sqlite:///"


def hidden(settings: ContextSettings, url: str, journal: str, job_log: str, secrets_key: str = "") -> tuple[str, ...]:
    """These folders. Invalid, if handlers would see one and cannot do without it; the sentence says what to move."""
    found: list[str] = []
    for what, folder in _used(url, journal, job_log, secrets_key):
        real = os.path.realpath(folder)
        if real not in found and cannot_hide(real, settings):
            raise Invalid(
                f"handlers would see {what}, as {real} is also where their interpreters and libraries are: use a "
                "folder of its own, best outside of /usr; or --trust-handlers, if you would run them yourself"
            )
        found.append(real)
    return tuple(dict.fromkeys(found))


def _used(url: str, journal: str, job_log: str, secrets_key: str) -> Iterator[tuple[str, str]]:
    """What is where."""
    path = url.removeprefix(_SQLITE)
    if path not in (url, ":memory:"):
        yield "the daemon's database", os.path.dirname(os.path.realpath(path))
    yield "the daemon's journal", journal
    if job_log:
        yield "the log of jobs", os.path.dirname(os.path.realpath(job_log))
    if secrets_key:
        yield "the key of secrets", os.path.dirname(os.path.realpath(secrets_key))
    if file := config.read().file:
        yield f"the configuration {file}", str(file.parent)
    for number, what in ((1, "the daemon's standard output"), (2, "the daemon's standard error")):
        if opened := _file(number):
            yield what, os.path.dirname(opened)
    try:
        yield "the daemon's working directory", os.getcwd()
    except FileNotFoundError:
        pass  # it was removed
    yield "temporary files", tempfile.gettempdir()


def _file(number: int) -> str:
    """The path of a regular file that is open; "" if it is something else."""
    try:
        return os.readlink(f"/proc/self/fd/{number}") if stat.S_ISREG(os.fstat(number).st_mode) else ""
    except OSError:
        return ""
