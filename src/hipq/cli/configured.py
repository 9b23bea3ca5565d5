"""A command all of whose options can be said by a section of hipq.toml and by the environment, too.

There is no list of them beside the options themselves: an option that is added is in the file, in the environment and
in `hipq config` from then on. One that is made with `allow_from_autoenv=False` is said elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from hipq.cli.commands import Command
from hipq.cli.inputs import Whole
from hipq.config import Found, read
from hipq.errors import Invalid, nearest, shown

WORDS: Final = "hipq.words"
"""Where a context has the words that the command was given."""
_PLACES: Final = ("FILE", "FOLDER")
"""What stands for the value of an option that is a path: in a file of settings it begins at that file."""
_NAMED_PLACES: Final = "NAME=FOLDER"
"""The same for an option of which there may be several, each with a name."""


class Configured(Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)
        if not ctx.resilient_parsing and not set(args) & set(ctx.help_option_names):
            _check_environment(self, str(ctx.auto_envvar_prefix))
        return super().parse_args(ctx, args)


def options_of(command: click.Command) -> dict[str, click.Option]:
    """The options that the file and the environment can say, by the names they have there."""
    options = [one for one in command.params if isinstance(one, click.Option) and one.allow_from_autoenv]
    return {one.name or "": one for one in options}


def variable(ctx: click.Context, name: str) -> str:
    """The environment variable for an option."""
    return f"{ctx.auto_envvar_prefix}_{name.upper()}"


def _check_environment(command: click.Command, prefix: str) -> None:
    known = [f"{prefix}_{name.upper()}" for name in options_of(command)]
    for name in os.environ:
        if name.startswith(f"{prefix}_") and name not in known:
            raise Invalid(f"${name:.80} is no setting of hipq {command.name}{nearest(name, known)}")


def defaults(name: str | None, commands: Mapping[str, click.Command]) -> dict[str, Any]:
    """What the file says of a command, as its options want it; asked only for those that it can say something of."""
    if name == "serve":
        found = read()
        return {name: of_file(commands[name], found, found.settings.serve)}
    if name == "waiter":
        waiter = commands[name]
        return {name: _of_waiter(read(), waiter.commands if isinstance(waiter, click.Group) else ())}
    return {name: said_of(read(), name)} if name in ("worker", "prune") else {}


def _of_waiter(found: Found, names: Iterable[str]) -> dict[str, Any]:
    """For each of its commands. Queues are no option of theirs, and only these two have this kind of delay."""
    given = said_of(found, "waiter")
    delay = {"delay": given.pop("delay")} if "delay" in given else {}
    given.pop("queues", None)
    return {name: given | (delay if name in ("run", "work") else {}) for name in names}


def said_of(found: Found, section: str) -> dict[str, Any]:
    """What the file says in a section that is for one command."""
    given: dict[str, Any] = msgspec.to_builtins(getattr(found.settings, section))
    if given.get("queues") is not None:
        given["queues"] = ",".join(given["queues"])
    return {name: value for name, value in given.items() if value is not None}


def of_file(command: click.Command, found: Found, section: Mapping[str, Any]) -> dict[str, Any]:
    """What a section of the file says, as the command's options want it. Invalid names the file and the key."""
    options = options_of(command)
    return {key: _of_file(command, options, found, key, value) for key, value in section.items()}


def _of_file(command: click.Command, options: Mapping[str, click.Option], found: Found, key: str, value: Any) -> Any:
    where = f"{found.file}: {command.name}.{key:.60}"
    if key not in options:
        there = "; there are " + ", ".join(options)
        raise Invalid(f"{where} is no setting{nearest(key, list(options)) or there}")
    option = options[key]
    if must := _must_be(option, value):
        raise Invalid(f"{where} must be {must}, not {shown(value)}")
    try:
        option.type_cast_value(click.Context(command), value)
    except Invalid as error:
        raise Invalid(f"{where}: {error}") from None
    except click.BadParameter as error:
        raise Invalid(f"{where}: {error.message}") from None
    if option.metavar in _PLACES and found.file is not None:
        return str(found.file.parent / value)
    if option.metavar == _NAMED_PLACES and found.file is not None:
        return [_beside(found.file, one) for one in value]
    return value


def _beside(file: Path, named: str) -> str:
    name, mark, place = named.partition("=")
    return f"{name}={file.parent / place}" if mark and place else named


def _must_be(option: click.Option, value: Any) -> str:
    """What an option takes, if it is of another type; "" if it is of the right one."""
    if option.is_flag:
        return "" if isinstance(value, bool) else "true or false"
    if option.multiple:
        is_right = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return "" if is_right else 'a list, like ["one", "two"]'
    if isinstance(option.type, Whole):
        return "" if type(value) is int else "a whole number"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(option.type, (click.Choice, click.types.StringParamType)):
        return "" if isinstance(value, str) else "a text"
    return "" if is_number or isinstance(value, str) else "a number or a text"
