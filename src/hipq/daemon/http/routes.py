"""All routes there are: one table, from which they are served and described."""

from __future__ import annotations

from typing import Final

from hipq.daemon.http import routes_about, routes_handlers, routes_jobs
from hipq.daemon.http.routes_table import Route

ROUTES: Final[tuple[Route, ...]] = (*routes_jobs.ROUTES, *routes_handlers.ROUTES, *routes_about.ROUTES)
ADD: Final = routes_jobs.ROUTES[0]
"""The seed's `add`: what most requests are."""
