"""The inbox, and the listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hipq.dashboard.visit import PageRoute, Reply, Role, Visit

if TYPE_CHECKING:
    from hipq.dashboard.site import Site


def page(site: Site, visit: Visit) -> Reply:
    return site.render("answers.html", visit, now=site.store.now())


ROUTES: Final = (PageRoute("GET", "/answers", Role.VIEW, page),)
