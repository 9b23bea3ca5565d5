"""Limits, shares, windows, pauses and cron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hipq.dashboard.visit import PageRoute, Reply, Role, Visit

if TYPE_CHECKING:
    from hipq.dashboard.site import Site


def page(site: Site, visit: Visit) -> Reply:
    return site.render("rules.html", visit, now=site.store.now())


ROUTES: Final = (PageRoute("GET", "/rules", Role.VIEW, page),)
