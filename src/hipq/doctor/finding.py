"""A finding: what was looked at, how bad it is, one sentence, and what to do about it; and the words for times, sizes
and counts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from hipq.job.when import to_datetime
from hipq.stores.health.facts import COUNTED, Health

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
LEVELS: Final = (OK, NOTE, WARNING, PROBLEM)
"""The levels, from good to bad."""


class Finding(msgspec.Struct, frozen=True):
    level: str
    sentence: str
    advice: str = ""
    queue: str = ""
    """INSTANCE.QUEUE; "" = the finding is about the whole database."""
    facts: dict[str, Any] = {}
    check: str = ""
    """The check that found it, which `diagnose` fills in."""

    def listed(self) -> dict[str, Any]:
        """The finding as JSON."""
        names = ("check", "level", "queue", "sentence", "advice", "facts")
        return {name: getattr(self, name) for name in names}


ok, note, warning, problem = (partial(Finding, level) for level in LEVELS)


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


def queue_of(health: Health, table: str) -> str:
    """The queue that a table belongs to; "" if it belongs to all."""
    return next((one.name for one in health.queues if table in (one.tables.table, f"{one.tables.table}_final")), "")


# -- words -----------------------------------------------------------------------------------------------------------
def lasting(seconds: float) -> str:
    """A time in the two units that matter: 45 s, 12 min, 3 h 5 min, 4 days 2 h."""
    whole = max(round(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if whole < 60:
        return f"{whole} s"
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    return ("1 day" if days == 1 else f"{days} days") + (f" {hours % 24} h" if hours % 24 else "")


def at(moment: int) -> str:
    return to_datetime(moment).isoformat(" ", "seconds").replace("+00:00", " UTC")


def size(count: int) -> str:
    """Bytes: 512 bytes, 3.4 MB, 2 GB."""
    if count < 1000:
        return f"{count} bytes"
    value, unit = float(count), ""
    for unit in ("kB", "MB", "GB", "TB"):  # noqa: B007
        value /= 1000
        if value < 999.5:
            break
    return f"{value:.3g} {unit}"


def several(count: int, noun: str) -> str:
    """1 job, 12 jobs, 1,000 jobs or more."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}s" + (" or more" if count >= COUNTED else "")
