"""Killed at any moment, and with the power cut at any moment: all that was acknowledged is there, and once."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipq.journal import Position
from tests import processes
from tests.journal.helpers import WAIT, drain, examined, opened
from tests.journal.life import live
from tests.journal.test_disk import PROJECT

Said = list[tuple[str, Any]]
SURVIVORS: list[Callable[[bytes, bytes], bytes]] = [
    lambda synced, _: synced,
    lambda synced, written: written[: (len(synced) + len(written)) // 2],
    lambda synced, written: synced.ljust(len(written), b"\x00"),
    lambda _, written: written,
]


def check(folder: Path, said: Said, where: object) -> list[str]:
    """What a store and a journal have together, after everything that was said; kinds of what opening it reported."""
    acknowledged = {value for kind, value in said if kind == "acknowledged"}
    taken = [number for kind, value in said if kind == "taken" for number in value[0]]
    position = next((Position.of(value[1]) for kind, value in reversed(said) if kind == "taken"), None)
    with opened(folder, position=position) as journal:
        found: list[str] = [one.kind for one in journal.found]
        waiting = journal.waiting_jobs
        left = [one.first for one in drain(journal)]
    assert waiting == len(left), where
    together = Counter(taken + left)
    assert acknowledged <= set(together), where
    assert max(together.values(), default=1) == 1, f"{where}: none is there twice"
    assert left == sorted(left), where
    assert len(together) - len(acknowledged) <= 1, f"{where}: at most the one that was being written is there too"
    return found


def test_killed_before_any_step_of_its_life_it_has_all_that_was_acknowledged(in_memory: Path) -> None:
    folder = in_memory / "steps"
    folder.mkdir()
    command = [sys.executable, "-m", "tests.journal.life", str(folder)]
    ran = processes.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=10 * WAIT, check=True)
    assert ran.stderr == ""
    *died, whole = [json.loads(line) for line in ran.stdout.splitlines()]
    assert whole["status"] == 0
    assert len(died) > 60
    assert {one["status"] for one in died} == {-signal.SIGKILL}
    for one in died:
        found = check(folder / str(one["step"]), one["said"], one["step"])
        assert set(found) <= {"cut", "note"}, "a process that is killed damages nothing"


def test_killed_at_random_moments_it_has_all_that_was_acknowledged(folder: Path) -> None:
    choose = random.Random(7)
    expected: Counter[int] = Counter()
    for _ in range(6):
        command = [sys.executable, "-m", "tests.journal.program", str(folder), "many"]
        with processes.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            lines = [process.stdout.readline() for _ in range(choose.randint(1, 300))]
            process.kill()
            lines += process.stdout.readlines()
        heard = [line.split() for line in lines if line.endswith("\n")]
        assert all(word in ("open", "acknowledged") for word, _ in heard)
        expected.update(int(number) for word, number in heard if word == "acknowledged")
        batches, found = examined(folder)
        assert expected <= Counter(one.first for one in batches)
        assert {problem.kind for problem in found.problems} <= {"cut"}
    assert sum(expected.values()) > 100


class Power:
    """Watches what is on disk for sure: of a file what was synced, of a folder the names that were there when it was.
    At every sync, before and after it, the power could fail."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.said = folder, Said()
        self.moments: list[tuple[dict[str, tuple[bytes, bytes]], Said]] = []
        self._synced: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, real: Any) -> Any:
        def sync(descriptor: int) -> None:
            self._remember()
            real(descriptor)
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                if os.path.samestat(status, os.stat(self.folder)):
                    self._names = {path.name: path.stat().st_ino for path in self.folder.iterdir()}
            else:
                self._synced[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()
            self._remember()

        return sync

    def _remember(self) -> None:
        now = {path.stat().st_ino: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
        files = {
            name: (self._synced.get(inode, b""), now.get(inode, self._synced.get(inode, b"")))
            for name, inode in self._names.items()
        }
        self.moments.append((files, list(self.said)))


def test_with_the_power_cut_at_any_sync_it_has_all_that_was_acknowledged(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written and not synced may be there, or a part of it, or zeros in its place, or nothing."""
    with monkeypatch.context() as patched:
        (in_memory / "powered").mkdir()
        power = Power(in_memory / "powered", patched)
        live(power.folder, lambda kind, value: power.said.append((kind, value)))
    assert len(power.moments) > 60
    assert sum(synced != written for files, _ in power.moments for synced, written in files.values()) > 15
    folder = in_memory / "cut"
    for number, (files, said) in enumerate(power.moments):
        for survives in SURVIVORS:
            folder.mkdir()
            for name, (synced, written) in files.items():
                (folder / name).write_bytes(survives(synced, written))
            check(folder, said, number)
            shutil.rmtree(folder)
