"""The examples of README.md and of the guides, run from top to bottom in a new folder.

A python block whose first line names a file is written to it, others are run. In a console block each line after
`$ ` is typed into a shell; what follows is what it must print, `...` standing for anything.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = {"README.md": (6, 4), "docs/answers.md": (7, 3), "docs/when-a-job-may-run.md": (5, 4),
          "docs/handlers.md": (0, 1)}  # fmt: skip
"""How many commands and programs each has: so that none is overlooked."""


def blocks(guide: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / guide).read_text(), flags=re.DOTALL | re.MULTILINE)


def run(command: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HIPQ_", "PYTEST_"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def console(block: str, folder: Path) -> int:
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE)
    for command, expected in commands:
        printed = run(["bash", "-c", command], folder)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(expected, printed, flags), f"$ {command}\n{printed}"
    return len(commands)


@pytest.mark.parametrize("guide", GUIDES)
def test_every_example_runs(guide: str, tmp_path: Path) -> None:
    commands = programs = 0
    for language, block in blocks(guide):
        if language == "console":
            commands += console(block, tmp_path)
        elif language == "python" and (name := re.match(r"# (\w+\.py)\n", block)):
            (tmp_path / name[1]).write_text(block)
        elif language == "python":
            run([sys.executable, "-c", block], tmp_path)
            programs += 1
        else:
            assert language == "sh"  # `make`: it has made the environment this runs in
            assert all(line.startswith("make ") for line in block.splitlines())
    assert (commands, programs) == GUIDES[guide]


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_promises_only_what_can_be_imported(guide: str) -> None:
    import hipq

    names = {
        name
        for _, block in blocks(guide)
        for line in re.findall(r"from hipq import (.*)", block)
        for name in line.split(", ")
    }
    assert names
    assert names <= set(hipq.__all__)
