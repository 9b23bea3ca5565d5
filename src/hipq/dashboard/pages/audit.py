"""Who did what by hand, and was refused what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from hipq.dashboard.visit import PageRoute, Refused, Reply, Role, Visit

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

ROWS: Final = 100


def page(site: Site, visit: Visit) -> Reply:
    text = visit.asked("before", "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Refused(400, "the list goes on before the number of an entry")
    found = site.store.audit_log(int(text), ROWS + 1)
    entries = [(entry, msgspec.json.decode(entry.details)) for entry in found[:ROWS]]
    before = found[ROWS - 1].id if len(found) > ROWS else 0
    return site.render("audit.html", visit, now=site.store.now(), entries=entries, before=before)


ROUTES: Final = (PageRoute("GET", "/audit", Role.ADMIN, page),)
