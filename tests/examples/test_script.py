"""examples/script.py: killed in the middle and started again, it fetches everything, and hardly anything twice."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.examples.running import PATIENCE, jobs, run, started

FILES = 150
HANDS = 8
MISSING = {number for number in range(FILES) if number % 50 == 49}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with started("script.py", tmp_path, "--serve", "--pause", "0.15") as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"


def books(url: str) -> tuple[Counter[str], Counter[str]]:
    """How often each file was asked for, and sent whole."""
    with urllib.request.urlopen(f"{url}/books", timeout=PATIENCE) as reply:
        found = json.load(reply)
    return Counter(found["asked"]), Counter(found["sent"])


@contextmanager
def interrupted(url: str, folder: Path, by: signal.Signals) -> Iterator[subprocess.Popen[str]]:
    """The script, sent a signal when it has fetched some files and not all of them."""
    with started("script.py", folder, "--url", url, "--files", str(FILES)) as script:
        limit = time.monotonic() + PATIENCE
        while len(list(folder.glob("files/file-*"))) < 20 and time.monotonic() < limit:
            time.sleep(0.005)
        script.send_signal(by)
        script.wait(PATIENCE)
        yield script


def check(folder: Path) -> None:
    for number in range(FILES):
        file = folder / "files" / f"file-{number:03}.txt"
        assert file.exists() == (number not in MISSING)
        if file.exists():
            assert file.read_text() == f"this is {file.name}\n" * 100
    left = jobs(folder / "downloads.db", "downloads", "files")
    assert len({job.key for job in left}) == len(left) == FILES
    assert Counter(job.code for job in left) == {"ok": FILES - len(MISSING), "failed": len(MISSING)}


def test_after_kill_9_it_goes_on_where_it_stopped(url: str, tmp_path: Path) -> None:
    with interrupted(url, tmp_path, signal.SIGKILL) as script:
        assert script.returncode == -signal.SIGKILL
    fetched = len(list(tmp_path.glob("files/file-*")))
    assert 20 <= fetched < FILES - len(MISSING)
    printed = run("script.py", tmp_path, "--url", url, "--files", str(FILES))
    assert "added" not in printed
    assert f"{FILES - len(MISSING)} fetched, {len(MISSING)} not found, 0 given up, 0 left" in printed
    check(tmp_path)
    _, sent = books(url)
    assert sum(sent.values()) <= FILES - len(MISSING) + 2 * HANDS  # what was under way, and what was not yet saved


def test_after_ctrl_c_nothing_is_fetched_twice(url: str, tmp_path: Path) -> None:
    with interrupted(url, tmp_path, signal.SIGINT) as script:
        assert script.stdout is not None
        assert script.returncode == 1
        assert " left" in script.stdout.read().splitlines()[-1]
    assert len(list(tmp_path.glob("files/file-*"))) < FILES - len(MISSING)
    run("script.py", tmp_path, "--url", url, "--files", str(FILES))
    check(tmp_path)
    _, sent = books(url)
    assert set(sent.values()) == {1}
    before = books(url)
    again = run("script.py", tmp_path, "--url", url, "--files", str(FILES))
    assert again.splitlines() == [f"{FILES - len(MISSING)} fetched, {len(MISSING)} not found, 0 given up, 0 left"]
    assert books(url) == before


def test_it_needs_no_options(tmp_path: Path) -> None:
    assert "294 fetched, 6 not found, 0 given up, 0 left" in run("script.py", tmp_path)
    assert len(list((tmp_path / "files").iterdir())) == 294
