"""Help of every command: a sentence, what its options do, and examples that are right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hipq.cli.main import cli
from tests.cli.conftest import HipqCommand
from tests.cli.terminal import HIPQ, on_terminal


def walk(command: click.Command, path: str = "hipq") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from walk(one, f"{path} {name}")


ALL = dict(walk(cli))


def examples(command: click.Command) -> list[str]:
    _, _, text = (command.epilog or "").partition("Examples:\n")
    return [line.strip() for line in text.splitlines() if line.strip()]


EXAMPLES = [(path, line) for path, command in ALL.items() for line in examples(command)]


def test_every_command_has_examples() -> None:
    assert len(ALL) > 25
    assert {path for path, command in ALL.items() if not examples(command)} == set()
    assert {path: len(examples(command)) for path, command in ALL.items() if len(examples(command)) > 3} == {}


def words_of(line: str) -> list[str]:
    """What the shell would hand to hipq."""
    words = shlex.split(line)
    while re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    end = next((index for index, word in enumerate(words) if word in (">", "|", "<")), len(words))
    return words[:end]


@pytest.mark.parametrize(("path", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_an_example_is_one_of_its_command_and_parses(
    path: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"--data-file (\S+)", line):
        (tmp_path / name).touch()
    start, *words = words_of(line)
    assert start == "hipq"
    command: click.Command = cli
    context = click.Context(cli, info_name="hipq")
    while isinstance(command, click.Group):
        name, *words = words
        command = command.commands[name]
        context = command.make_context(name, words, parent=context) if not isinstance(
            command, click.Group
        ) else click.Context(command, info_name=name, parent=context)  # fmt: skip
    assert context.command_path.startswith(path)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)} <= known


@pytest.mark.parametrize("path", ALL)
def test_help_says_what_it_does_and_what_each_option_does(hipq: HipqCommand, path: str) -> None:
    command = ALL[path]
    assert command.help
    assert command.get_short_help_str(200)[:1].isupper()
    silent = [one.name for one in command.params if isinstance(one, click.Option) and not (one.help or one.hidden)]
    assert silent == []
    ran = hipq(*path.split()[1:], "--help")
    assert ran.status == 0
    assert ran.out.startswith(f"Usage: {path} ")
    assert "Examples:\n" in ran.out
    for line in examples(command):
        assert f"    {line}\n" in ran.out  # whole, to be pasted


def test_hipq_alone_is_a_call_for_help(hipq: HipqCommand) -> None:
    ran = hipq()
    assert (ran.status, ran.out) == (0, hipq("--help").out)
    assert hipq("job").status == 2, "a group without a command is bad usage"


def test_help_needs_neither_an_application_nor_a_right_file(hipq: HipqCommand, folder: Path) -> None:
    (folder / "hipq.toml").write_text("nonsense")
    for command in ("worker", "prune", "job list", "queue limit", "config"):
        assert hipq(*command.split(), "--help").status == 0
    assert hipq("completion", "bash").status == 0


def test_help_on_a_narrow_terminal(folder: Path) -> None:
    shown = on_terminal([*HIPQ, "queue", "limit", "--help"], folder, columns=40)
    assert shown.status == 0
    assert "Usage: hipq queue limit" in shown.text
    text, _, _ = shown.text.partition("Examples:")
    assert max(len(line) for line in text.replace("\r", "").splitlines()) <= 50
