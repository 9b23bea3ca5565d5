"""The journal of this daemon: how much waits in it for the database, and what is wrong with it. The page reads neither
the database nor the journal's files: it is looked at when one of them is in trouble."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from hipq.dashboard.visit import Reply, Visit

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon
    from hipq.dashboard.site import Site

FINDINGS: Final = 100
"""Those that are shown, the last ones first."""


class JournalPage:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def page(self, site: Site, visit: Visit) -> Reply:
        journal = self._daemon.journal
        found = list(journal.found)
        return site.render(
            "journal.html", visit, journal=journal, health=self._daemon.health(), said=self._daemon.ready(),
            kinds=Counter(one.kind for one in found), found=found[-FINDINGS:][::-1], all=len(found),
        )  # fmt: skip
