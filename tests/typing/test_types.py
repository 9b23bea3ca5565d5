"""What type checkers say about programs that use hipq: nothing about those that are right, and the truth about wrong
ones. mypy and Pyright (as basedpyright, which brings its own Node) are asked, and ty."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


def _said(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # it ran
    return done.stdout + done.stderr


def _mypy(folder: str, cache: Path) -> str:
    return _said(BIN / "mypy", "--strict", "--config-file=", "--cache-dir", cache, f"{folder}/program.py")


def _pyright(folder: str, _cache: Path) -> str:
    options = ("--level", "error", "--pythonpath", sys.executable)
    return _said(BIN / "basedpyright", *options, f"{folder}/program.py")


def _ty(folder: str, _cache: Path) -> str:
    return _said(BIN / "ty", "check", "--output-format", "concise", "--python", sys.prefix, f"{folder}/program.py")


CHECKERS: list[Callable[[str, Path], str]] = [_mypy, _pyright, _ty]


def _lines(said: str) -> set[int]:
    """The lines of the program that have errors."""
    return {int(line) for line in re.findall(r"program\.py:(\d+)(?::\d+)?[^\n]*\berror\b", said)}


@pytest.mark.parametrize("check", CHECKERS)
def test_a_program_that_is_right_is_accepted(check: Callable[[str, Path], str], tmp_path: Path) -> None:
    said = check("right", tmp_path)
    assert _lines(said) == set(), said


@pytest.mark.parametrize("check", CHECKERS)
def test_each_mistake_is_an_error_where_it_is_made(check: Callable[[str, Path], str], tmp_path: Path) -> None:
    program = (HERE / "wrong/program.py").read_text().splitlines()
    marks = ("# error",) if check is _ty else ("# error", "# error, but not for ty")
    wrong = {number for number, line in enumerate(program, 1) if line.endswith(marks)}
    said = check("wrong", tmp_path)
    assert _lines(said) == wrong, said
