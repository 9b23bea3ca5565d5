"""Folders of contexts: gone with them; and if their daemon was killed, with the next one that starts."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hipq.sandbox import ContextPool, ContextSettings
from hipq.sandbox.leftovers import HELD, Scratch

KILLED = """
import os, signal
from hipq.sandbox.leftovers import Scratch
scratch = Scratch()
folder = scratch.folder()
open(folder + "/file", "w").close()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def kill_one() -> None:
    assert subprocess.run([sys.executable, "-c", KILLED], check=False).returncode == -9


def test_what_a_daemon_that_was_killed_left_is_gone_when_the_next_one_starts(elsewhere: Path) -> None:
    kill_one()
    (left,) = elsewhere.iterdir()
    assert left.name.startswith(HELD)
    assert [path.name for path in left.iterdir()] == ["file"]
    ContextPool(ContextSettings(trust=True)).close()
    assert list(elsewhere.iterdir()) == []


def test_what_a_daemon_that_lives_needs_stays(elsewhere: Path) -> None:
    mine = Scratch()
    folders = [mine.folder(), mine.folder()]
    kill_one()
    ContextPool(ContextSettings(trust=True)).close()
    assert sorted(map(str, elsewhere.iterdir())) == sorted(folders)
    for folder in folders * 2:
        mine.remove(folder)
    assert list(elsewhere.iterdir()) == []
    assert mine._locks == {}


def test_what_is_not_ours_stays(elsewhere: Path) -> None:
    somewhere = elsewhere / "somewhere"
    somewhere.mkdir()
    (somewhere / "file").touch()
    (elsewhere / f"{HELD}link").symlink_to(somewhere)
    (elsewhere / f"{HELD}file").touch()
    (elsewhere / "hipq-context-abcdefgh").mkdir()
    ContextPool(ContextSettings(trust=True)).close()
    assert len(list(elsewhere.iterdir())) == 4
    assert (somewhere / "file").exists()
