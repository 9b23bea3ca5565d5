"""Whether a daemon does its work: it accepts jobs, stores them, runs them. If not, why not; and what needs a look.

Whoever can connect may ask, so a reason names no path, no address and nobody's job: the log has those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon

LOW: Final = 256 << 20
"""Bytes that are free where the journal is, below which its disk is said to be low."""
HEALTH: Final = ("ok", "behind", "refused", "stuck", "store away", "disk full", "broken")
"""What a daemon may say of itself: all is well; much of the journal waits; some jobs were refused by the database, and
are in the journal's quarantine; the database is there and takes none; it cannot be reached; the last post found no room
in the journal; nothing is accepted."""
PARTS: Final = ("accepts", "stores", "runs")


class Ready(msgspec.Struct, frozen=True):
    accepts: bool
    """Jobs that are posted are taken."""
    stores: bool
    """They come into the database."""
    runs: bool
    """They are run."""
    reasons: tuple[str, ...]
    """Why not; and what needs somebody to look at it, whatever is true of these three."""


def ready(daemon: Daemon) -> Ready:
    accepting = _accepting(daemon)
    storing = _storing(daemon)
    running = _running(daemon)
    return Ready(not accepting, not storing, not running, (*accepting, *storing, *running, *_noticed(daemon)))


def _accepting(daemon: Daemon) -> list[str]:
    if daemon.journal.broken:
        return ["the journal is latched: a write to its disk failed, and nothing is accepted any more"]
    if daemon.failed:
        return ["the engine ended, and the daemon stops"]
    if not daemon.journal.has_room:
        return ["the disk of the journal is full: the last jobs that were posted found no room"]
    return ["the journal is full: the database has to take some of it first"] if daemon.is_full else []


def _storing(daemon: Daemon) -> list[str]:
    if daemon.store_away:
        return ["the store is away: jobs wait in the journal"]
    return ["the store is there, and takes nothing: jobs wait in the journal"] if daemon.store_stuck else []


def _running(daemon: Daemon) -> list[str]:
    if daemon.failed:
        return ["the engine ended: no job runs"]
    if daemon.store_away:
        return ["the store is away: no job can be claimed"]
    return ["the sandbox cannot start, so no handler in code runs"] if daemon.sandbox_refuses() else []


def _noticed(daemon: Daemon) -> list[str]:
    kinds = {finding.kind for finding in daemon.journal.found}
    found = []
    if kinds & {"damage", "missing"}:
        found.append("the journal is damaged: jobs that were accepted may be lost; see `hipq journal check`")
    if "refused" in kinds:
        found.append("the database has refused jobs: they are in quarantine; see `hipq journal quarantine`")
    if 0 <= daemon.journal.free_bytes < LOW:
        found.append("the disk of the journal is low: little more can be accepted")
    return found
