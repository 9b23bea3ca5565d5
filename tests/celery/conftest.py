from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hipq import Hipq
from tests.brokers.redis import redis_url
from tests.celery.messages import Case, kept_in
from tests.celery.running import Shop
from tests.servers import fresh_database


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where far tasks are kept."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/kept.db"
        return
    with fresh_database() as url:
        app = Hipq("celery", url)
        app.queue("eta")
        app.migrate()
        app.close()
        yield url


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    """Makes shops on Redis, and cleans up after them."""
    with ExitStack() as stack:

        def make(name: str = "shop", db: str | None = None, **more: str) -> Shop:
            made = Shop(tmp_path / name, more.pop("broker", redis_url()), db, **more)
            stack.callback(made.clean)
            return made

        yield make


@pytest.fixture
def case() -> Iterator[Case]:
    """A Celery app of this process, whose broker is in memory."""
    case = Case("memory://", result_backend="cache+memory://")
    yield case
    case.clean()


@pytest.fixture
def kept(case: Case, tmp_path: Path) -> Iterator[Hipq]:
    """What keeps its far tasks."""
    with kept_in(case, tmp_path) as kept:
        yield kept
