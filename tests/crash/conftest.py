"""All databases, each its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mariadb_server import fresh_maria
from tests.servers import fresh_database


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/crash.db"
    else:
        with fresh_database() if request.param == "postgres" else fresh_maria() as found:
            yield found
