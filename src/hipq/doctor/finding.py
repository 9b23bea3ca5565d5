"""A finding: what was looked at, how bad it is, one sentence, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
LEVELS: Final = (OK, NOTE, WARNING, PROBLEM)
"""The levels, from good to bad."""


class Finding(msgspec.Struct, frozen=True):
    check: str
    level: str
    sentence: str
    advice: str = ""
    queue: str = ""
    """INSTANCE.QUEUE; "" = the finding is about the whole database."""
    facts: dict[str, Any] = {}

    def listed(self) -> dict[str, Any]:
        """The finding as JSON."""
        names = ("check", "level", "queue", "sentence", "advice", "facts")
        return {name: getattr(self, name) for name in names}


class View(NamedTuple):
    """How a database is looked at: the names that advised commands use, and the time after which something is late."""

    target: str = "--db URL"
    """The argument of the command line: MODULE:APP, or --db and a URL without its password."""
    program: str = ""
    """MODULE:APP; "" if only a database is known."""
    patience: float = 300.0
    """Seconds after which something that should have happened is late."""
    code: Mapping[str, frozenset[str]] = MappingProxyType({})
    """The job types the program has code for, by INSTANCE.QUEUE."""

    def command(self, name: str, *words: str, queue: str = "") -> str:
        """A command line to be copied: `hipq queue resume shop:app shop.orders`."""
        more = [shlex.quote(word) for word in ([queue, *words] if queue else words)]
        return f"`hipq {' '.join([name, self.target, *more])}`"

    def worker(self, queue: str = "") -> str:
        """The command that runs a queue's jobs."""
        name = queue.partition(".")[2]
        more = f" -q {shlex.quote(name)}" if name else ""
        return f"`hipq worker {self.program or 'MODULE:APP'}{more}`"


def at_worst(findings: list[Finding]) -> str:
    return max((finding.level for finding in findings), key=LEVELS.index, default=OK)
