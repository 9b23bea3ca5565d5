"""Pages that a site has beside its own, since only its host knows what they show: `Site(..., more=More(...))`."""

from __future__ import annotations

from typing import NamedTuple

from hipq.dashboard.visit import PageRoute, Role


class More(NamedTuple):
    routes: tuple[PageRoute, ...] = ()
    """They are served, refused and recorded like the site's own, behind those. None of them is open to nobody."""
    pages: tuple[tuple[str, str, Role], ...] = ()
    """What the navigation has of them: paths, names, and the least role of those who are to see them there."""
    is_all: bool = False
    """The site has no database, and of its own pages only those by which one comes in."""
    package: str = ""
    """The package with a folder `templates`, where their templates are."""
