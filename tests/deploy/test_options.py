"""What a file under deploy/ says to run, in comments and templates too, is a command with options that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click
import pytest

from hipq.cli.main import cli

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
FILES: Final = sorted(
    path
    for path in DEPLOY.rglob("*")
    if path.is_file() and path.suffix not in (".json",) and "__pycache__" not in path.parts
)
TEMPLATES: Final = sorted((DEPLOY / "helm/hipq/templates").glob("*.yaml"))
OWN: Final = {"APP_FOLDER", "COMMAND", "HEALTH_URL", "PASSWORD", "PATIENCE", "WORKER_OPTIONS"}
"""Variables that these files themselves read."""


def unknown(words: list[str]) -> list[str]:
    """Of a command line: what is no command, or no option of it."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0]) if words else None
        if found is None:
            return words[:1]
        command, words = found, words[1:]
    known = {one for param in command.params for one in (*param.opts, *param.secondary_opts)} | {"--help"}
    return [word for word in words if word.startswith("-") and word not in known and not word.lstrip("-").isdigit()]


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_each_command_that_a_file_names_can_be_given(file: Path) -> None:
    lines = re.findall(r"(?<![\w/.])hipq ((?:[a-z]+ )+(?:[\w:/.@]+ )*--[a-z-]+.*)", file.read_text())
    for line in lines:
        words = [word.strip('`,:;()[]."') for word in line.partition("`")[0].split()]
        assert unknown(words) == [], line


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_the_arguments_of_a_pod_are_a_command_with_options_that_there_are(template: Path) -> None:
    for text in re.findall(r"^ +args:(.*?)^ +(?:env:|\{\{- e)", template.read_text(), re.DOTALL | re.MULTILINE):
        words = re.findall(r"(?<![\w.-])(?:[a-z]+|--[a-z-]+)(?![\w.])", re.sub(r"\{\{.*?\}\}", "", text))
        assert unknown(words) == [], text


def test_the_variables_are_those_of_the_page_about_configuration() -> None:
    page = (DEPLOY.parent / "docs/configuration.md").read_text()
    serve = cli.get_command(click.Context(cli), "serve")
    assert serve is not None
    known = OWN | set(re.findall(r"`HIPQ_([A-Z_]+)`", page)) | {f"SERVE_{param.name}".upper() for param in serve.params}
    named = {name for file in FILES for name in re.findall(r"\bHIPQ_([A-Z_]+)", file.read_text())}
    assert {"DATABASE_URL", "CALLBACK_URL", "SERVE_DRAIN"} <= named <= known, named - known


def test_a_command_and_an_option_that_are_not_there_are_found() -> None:
    assert unknown(["serve", "--prot", "1"]) == ["--prot"]
    assert unknown(["work", "--drain"]) == ["work"]
