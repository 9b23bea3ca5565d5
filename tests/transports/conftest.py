from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.transports.link import eventually


@pytest.fixture
def nothing_left(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No thread is left behind, and nothing is written to stderr."""
    before = set(threading.enumerate())
    yield
    eventually(lambda: set(threading.enumerate()) - before, set())
    assert not capfd.readouterr().err
