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
    """Jobs come into the database."""
    runs: bool
    """Jobs are run."""
    reasons: tuple[str, ...]
    """Why not; and what needs somebody to look at it, whatever is true of these three."""


def ready(daemon: Daemon) -> Ready:
    journal, away = daemon.journal, daemon.store_away
    kinds = {finding.kind for finding in journal.found}
    accepting = {
        "the journal is latched: a write to its disk failed, and nothing is accepted any more": journal.broken,
        "the engine ended, and the daemon stops": daemon.failed,
        "the daemon stops: others may have more time for this": daemon.is_stopping,
        "the disk of the journal is full: the last jobs that were posted found no room": not journal.has_room,
        "the journal is full: the database has to take some of it first": daemon.is_full,
    }
    storing = {
        "the store is away: jobs wait in the journal": away,
        "the store is there, and takes nothing: jobs wait in the journal": daemon.store_stuck,
    }
    running = {
        "the engine ended: no job runs": daemon.failed,
        "the daemon stops: no more jobs are started": daemon.is_stopping,
        "the store is away: no job can be claimed": away,
        "the sandbox cannot start, so no handler in code runs": (
            not daemon.failed and not away and daemon.sandbox_refuses()
        ),
    }
    noticed = {
        "the journal is damaged: jobs that were accepted may be lost; see `hipq journal check`": (
            kinds & {"damage", "missing"}
        ),
        "the database has refused jobs: they are in quarantine; see `hipq journal quarantine`": "refused" in kinds,
        "the disk of the journal is low: little more can be accepted": 0 <= journal.free_bytes < LOW,
    }
    parts = [[why for why, is_so in found.items() if is_so] for found in (accepting, storing, running)]
    first = [why for part in parts for why in part[:1]]  # what else is wrong with a part follows from that
    accepts, stores, runs = (not part for part in parts)
    return Ready(accepts, stores, runs, (*first, *(why for why, is_so in noticed.items() if is_so)))
