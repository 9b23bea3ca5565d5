"""An application to test with the helpers, as a user has it; its own database is a file that no test should touch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq import Hipq
from hipq.testing import Harness, harness
from tests.databases import clean


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Hipq]:
    app = Hipq("shop", f"sqlite:///{tmp_path}/own.db")
    yield app
    app.close()


@pytest.fixture
def shop(app: Hipq) -> Iterator[Harness]:
    with harness(app) as shop:
        yield shop


@pytest.fixture
def db(store_kind: str, tmp_path: Path) -> Iterator[str]:
    """For what must be so on each database; SQLite is in memory."""
    with clean(store_kind, tmp_path) as url:
        yield "sqlite://" if store_kind == "sqlite" else url
