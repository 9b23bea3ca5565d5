"""docs/command-line.md: its examples run, and no command or setting is missing from it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from hipq import config
from hipq.cli.configured import of_file, options_of
from hipq.cli.main import cli
from hipq.cli.serve import serve
from tests.docs.test_readme import ROOT, blocks, console

PAGE = "docs/command-line.md"
COMMANDS = 46
"""Typed in its examples: so that none is overlooked."""


def test_every_example_runs(tmp_path: Path) -> None:
    typed = 0
    for language, block in blocks(PAGE):
        if language == "console":
            typed += console(block, tmp_path)
        elif language == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            assert name
            (tmp_path / name[1]).write_text(block)
        else:
            assert language == "toml"
    assert typed == COMMANDS


def test_the_file_it_shows_is_whole_and_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for language, block in blocks(PAGE) if language == "toml"]
    (tmp_path / "hipq.toml").write_text(block)
    monkeypatch.chdir(tmp_path)
    found = config.read()
    assert found.file == tmp_path / "hipq.toml"
    usual = of_file(serve, found, found.settings.serve)
    assert (usual["journal"], usual["environment"]) == (
        f"{tmp_path}/daemon.journal",
        [f"science={tmp_path}/envs/science"],
    )
    written = tomllib.loads(block)
    assert {name: set(value) if isinstance(value, dict) else 0 for name, value in written.items()} == {
        "app": 0,
        "database": 0,
        "callback_url": 0,
        "serve": set(options_of(serve)),
        **{name: set(msgspec.to_builtins(getattr(found.settings, name))) for name in ("worker", "prune", "waiter")},
    }


def paths(command: click.Command, path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield path
        return
    for name, one in command.commands.items():
        yield from paths(one, f"{path} {name}")


def test_no_command_is_missing() -> None:
    text = " ".join((ROOT / PAGE).read_text().split())
    assert [path for path in paths(cli, "hipq") if path not in text] == []
