"""The page of all commands and their options: what `--help` says of each."""

from __future__ import annotations

from collections.abc import Iterator

import click

from hipq.cli.main import cli


def page() -> str:
    parts = [
        "# Commands and options\n\nThis page is made from the commands: it is what `--help` prints of each. What they "
        "are for, with examples, is on the page of the [command line](command-line.md).\n"
    ]
    for path, command in commands(cli, click.Context(cli, info_name="hipq")):
        context = click.Context(command, info_name=path)
        mark = "#" * min(path.count(" ") + 1, 3)
        parts.append(f"\n{mark}# `{path}`\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    return "".join(parts)


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """A command and those below it, but not hidden ones, by what is typed."""
    path = context.command_path
    if path != "hipq":
        yield path, command
    if isinstance(command, click.Group):
        for name, one in sorted(command.commands.items()):
            if not one.hidden:
                yield from commands(one, click.Context(one, info_name=name, parent=context))
