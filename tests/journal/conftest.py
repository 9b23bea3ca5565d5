"""Folders for journals."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where no journal is yet."""
    return tmp_path / "journal"


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For tests that open a journal a thousand times: a sync costs nothing there. If there is none, on disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path_factory.mktemp("journals")
        return
    path = tempfile.mkdtemp(prefix="hipq-journal-", dir="/dev/shm")
    yield Path(path)
    shutil.rmtree(path)
