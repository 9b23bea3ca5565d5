"""Contexts that tests share, because to start one takes longer than to use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hipq.sandbox import ContextPool
from tests.executors.running import pool


@pytest.fixture(scope="session")
def contexts() -> Iterator[ContextPool]:
    """With the sandbox and the usual limits."""
    with pool() as contexts:
        yield contexts


@pytest.fixture(scope="session")
def trusted() -> Iterator[ContextPool]:
    """Without a sandbox."""
    with pool(trust=True) as contexts:
        yield contexts
