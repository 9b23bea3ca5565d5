"""Ids that a test can count."""

from __future__ import annotations

import pytest

from hipq.daemon import ids


@pytest.fixture(autouse=True)
def in_a_row(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process blocks of ids follow each other, from the first on, and so do a tenant's runs."""
    if "by_chance" not in request.node.name:
        monkeypatch.setattr(ids, "START", 1)
        monkeypatch.setattr(ids, "GAP", 1)
        monkeypatch.setattr(ids, "FIRST_RUNS", 1)
        monkeypatch.setattr(ids, "NEXT_RUNS", 1)
