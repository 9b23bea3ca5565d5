"""Fixtures of the contract suite. `database` and `empty_database` come from the module of each store."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.contract", "tests.transports.contract", "tests.transports.link")

from hipq.stores.protocols import Store  # noqa: E402
from hipq.stores.values import QueueTables  # noqa: E402
from hipq.testing.clock import HandClock  # noqa: E402
from tests.contract.database import Database  # noqa: E402
from tests.databases import STORES  # noqa: E402
from tests.ending import end_all  # noqa: E402
from tests.huge_pages import use_huge_pages  # noqa: E402

_apps = count(1)
EVERY: Final = 4
_with_stores: Final[dict[ModuleType, list[Callable[..., object]]]] = {}
# What a property says does not depend on how busy the machine is that looks for a counterexample.
settings.register_profile("hipq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hipq")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests are made, and stay: to look through them again and again took half of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        use_huge_pages()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests with a database that is not named are on SQLite, every fourth of a module, from the first on, and those
    with the mark `every_store` on each server, too. HIPQ_TEST_STORES=all: all of them."""
    marks = metafunc.definition.iter_markers("parametrize")
    if "store_kind" not in metafunc.fixturenames or any("store_kind" in mark.args[0] for mark in marks):
        return
    functions = _with_stores.setdefault(metafunc.module, [])
    if metafunc.function not in functions:
        functions.append(metafunc.function)
    if (
        functions.index(metafunc.function) % EVERY == 0
        or metafunc.definition.get_closest_marker("every_store")
        or os.environ.get("HIPQ_TEST_STORES") == "all"
    ):
        metafunc.parametrize("store_kind", STORES, indirect=True)


@pytest.fixture(scope="session")
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", STORES[0]))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    end_all()


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder in which every user may make files. Pytest's own are for one user."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(database: Database, clock: HandClock) -> Iterator[Store]:
    store = database.open(clock)
    yield store
    store.close()


@pytest.fixture
def app() -> str:
    """A name no other test uses: some stores share one database between tests."""
    return f"app{next(_apps)}"


@pytest.fixture
def queue(store: Store, app: str) -> QueueTables:
    return store.queue(app, "jobs", f"{app}_jobs")


@pytest.fixture
def queue2(store: Store, app: str) -> QueueTables:
    return store.queue(app, "mails", f"{app}_mails")


@pytest.fixture
def other(store: Store, queue: QueueTables, database: Database, clock: HandClock) -> Iterator[Store]:  # noqa: ARG001
    """A second store object on the same database, as another process has it."""
    other = database.open(clock)
    other.queues()
    yield other
    other.close()


@pytest.fixture
def engine(store: Store) -> int:
    """The engine_id of an engine with a live lease."""
    return store.take_lease(3600, "test")
