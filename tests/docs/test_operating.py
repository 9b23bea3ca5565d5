"""The pages for operators: each of their commands is run, and their code too."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

from hipq import Hipq
from tests import processes
from tests.docs.test_readme import blocks
from tests.servers import clean_database

DOCS = Path(__file__).parents[2] / "docs"


def commands(paper: str) -> list[list[str]]:
    """Every `hipq ...` line of its shell blocks, as words."""
    found = re.findall(r"```sh\n(.*?)```", (DOCS / paper).read_text(), flags=re.DOTALL)
    return [
        shlex.split(line, comments=True) for block in found for line in block.splitlines() if line.startswith("hipq")
    ]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The application of the README, with its two jobs added."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(next(code for kind, code in blocks("README.md") if kind == "python"))
    processes.run([sys.executable, "shop.py"], check=True)
    return tmp_path


def hipq(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hipq.cli.main", *words]
    return processes.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_every_command_for_operators(shop: Path) -> None:
    lines = commands("operating.md")
    assert len(lines) >= 9
    for words in lines:
        ran = hipq(*words[1:])
        assert ran.returncode in ((0, 1) if words[1] == "doctor" else (0,)), (words, ran.stderr)
        assert "Traceback" not in ran.stderr
    named = re.findall(r"`(hipq job requeue [^`]*)`", (DOCS / "operating.md").read_text())
    for line in named:
        if "shop:app" in line:
            ran = hipq(*shlex.split(line)[1:], "--yes")
            assert ran.returncode == 0, ran.stderr
    assert shop.exists()


def test_its_code(shop: Path) -> None:
    text = (DOCS / "operating.md").read_text()
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        processes.run([sys.executable, "-c", code], check=True, cwd=shop)
    for call in re.findall(r"`app\.([\w.]+)\(", text):
        assert callable(attrgetter(call)(Hipq("guide", "sqlite://"))), call


def test_moving(shop: Path) -> None:
    (words,) = commands("moving.md")
    with clean_database() as target:
        ran = hipq(*words[1:3], target)
        assert (ran.returncode, "all of it has arrived" in ran.stdout) == (0, True)
        listed = hipq("job", "list", "shop:app")
        assert "order-17" in listed.stdout
    assert shop.exists()
