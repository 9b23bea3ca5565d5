"""A shop, and a dashboard of it with a page of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq import Hipq
from hipq.dashboard import site as site_module
from hipq.dashboard.application import Dashboard, asgi
from tests.dashboard.serving import Served, Watched
from tests.databases import clean


@pytest.fixture
def either_url(store_kind: str, tmp_path: Path) -> Iterator[str]:
    """An empty database on either store."""
    with clean(store_kind, tmp_path / "shop.db") as url:
        yield url


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Hipq]:
    app = Hipq("shop", f"sqlite:///{tmp_path}/shop.db")
    app.queue("orders").job("charge")(lambda _: None)
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def watched(shop: Hipq, monkeypatch: pytest.MonkeyPatch) -> Watched:
    page = Watched(shop)
    monkeypatch.setattr(site_module, "ROUTES", (*site_module.ROUTES, page.route))
    return page


@pytest.fixture
def dashboard(shop: Hipq, watched: Watched) -> Dashboard:  # noqa: ARG001 - its route is there
    return asgi(shop, authenticate=lambda _scope: "admin")


@pytest.fixture
def served(dashboard: Dashboard) -> Iterator[Served]:
    server = Served(dashboard)
    yield server
    server.stop()
