"""A small disk of one's own, and how it is filled to the last byte."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BLOCK = b"x" * 4096


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """At this folder. The test is skipped where nobody may mount one."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no small disk can be mounted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Up to the last block; `(disk / "ballast").unlink()` makes room again."""
    ballast = os.open(disk / "ballast", os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(ballast, BLOCK)
    except OSError:
        os.close(ballast)
