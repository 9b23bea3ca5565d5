"""An app on each store, with a clock turned by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hipq import Hipq, Queue
from hipq.testing.clock import HandClock
from tests.databases import clean


@pytest.fixture
def url(store_kind: str, tmp_path: Path) -> Iterator[str]:
    with clean(store_kind, tmp_path / "engine.db") as found:
        yield found


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def make_app(url: str, clock: HandClock) -> Iterator[Callable[[], Hipq]]:
    """Further programs on the same database: each call is another one."""
    apps: list[Hipq] = []

    def make() -> Hipq:
        apps.append(Hipq("shop", url, clock=clock))
        apps[-1].migrate()
        return apps[-1]

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def app(make_app: Callable[[], Hipq]) -> Hipq:
    return make_app()


@pytest.fixture
def queue(app: Hipq) -> Queue:
    return app.queue("orders")


@pytest.fixture
def run(app: Hipq) -> Callable[[], None]:
    """Work until nothing is due."""
    return lambda: app.run(until_empty=True)
