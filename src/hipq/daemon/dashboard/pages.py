"""All pages that a daemon adds to the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipq.daemon.dashboard.handlers import HandlerPages
from hipq.daemon.dashboard.journal import JournalPage
from hipq.daemon.dashboard.tenants import TenantPages
from hipq.dashboard.more import More
from hipq.dashboard.visit import PageRoute, Role

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon


def pages_of(daemon: Daemon) -> More:
    tenants, handlers, journal = TenantPages(daemon), HandlerPages(daemon), JournalPage(daemon)
    return More(
        routes=(
            PageRoute("GET", "/tenants", Role.VIEW, tenants.every),
            PageRoute("GET", "/tenants/{name}", Role.VIEW, tenants.one),
            PageRoute("GET", "/handlers", Role.VIEW, handlers.every),
            PageRoute("GET", "/handlers/{tenant}/{type}", Role.VIEW, handlers.one),
            PageRoute("GET", "/journal", Role.VIEW, journal.page),
        ),
        pages=(
            ("/tenants", "Tenants", Role.VIEW), ("/handlers", "Handlers", Role.VIEW), ("/journal", "Journal", Role.VIEW)
        ),
        package="hipq.daemon.dashboard",
    )  # fmt: skip
