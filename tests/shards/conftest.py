"""Three databases as the shards of one instance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.databases import fresh


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Of three empty databases of one kind, by the names of the shards."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(fresh(request.param, tmp_path / f"{name}.db")) for name in ("a", "b", "c")}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    return {name: f"sqlite:///{tmp_path / name}.db" for name in ("a", "b", "c")}
