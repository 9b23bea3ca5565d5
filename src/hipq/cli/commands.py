"""What all commands have in common: a typo is told what may be meant, `--json`, `--yes` and `--quiet` mean the same
everywhere, and help ends with examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import wraps
from importlib import import_module
from typing import Any

import click

from hipq.cli.complain import nearest

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Made = Callable[[Callable[..., Any]], click.Command]


def _keep(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    ctx.meta[f"hipq.{option.name}"] = value


def asked(option: str) -> bool:
    """Whether the command that runs was given --json, --yes or --quiet; no command takes these as parameters."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(f"hipq.{option}"))


def is_typed(parameter: str) -> bool:
    """Whether the command line itself says it, and not a file or a default."""
    return click.get_current_context().get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE


_JSON = click.Option(["--json"], is_flag=True, expose_value=False, callback=_keep, help="Print JSON.")
yes_option = click.option("-y", "--yes", is_flag=True, expose_value=False, callback=_keep, help="Do not ask.")
quiet_option = click.option("--quiet", is_flag=True, expose_value=False, callback=_keep, help="Show no progress.")


def log_options(debug: str) -> Decorator:
    """--log-level, with the help of its level `debug`, and --log-format."""
    levels, formats = click.Choice(["debug", "info", "warning", "error"]), click.Choice(["text", "json", "none"])
    about = "json: for what collects logs; none: your program's own logging writes these lines."
    level = click.option("--log-level", type=levels, default="info", show_default=True, help=f"debug: {debug}")
    return together(level, click.option("--log-format", type=formats, default="text", show_default=True, help=about))


success_option = click.option(
    "--log-success", is_flag=True, help="Also a line for each job that succeeded, with how long it ran."
)


lifeline_option = click.option(
    "--lifeline", type=int, hidden=True, help="A pipe that closes when the supervisor of this process dies."
)


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def filters(*options: Decorator) -> Decorator:
    """--queue, and other options that say which jobs or answers are meant: a command gets the others as `wanted`, a
    dictionary of those that were given."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def filtered(**given: Any) -> Any:
            found = {name: given.pop(name) for name in names}
            return command(wanted={name: value for name, value in found.items() if value is not None}, **given)

        made = together(*options)(filtered)
        names = [one.name for one in made.__click_params__[-len(options) :]]  # type: ignore[attr-defined]
        return made

    return together(click.option("-q", "--queue", help="Only this queue."), decorate)


class Command(click.Command):
    """A command that can print JSON, unless it is made with `json=False`."""

    def __init__(self, name: str, *, params: Sequence[click.Parameter] = (), json: bool = True, **more: Any) -> None:
        super().__init__(name, params=[*params, *([_JSON] if json else ())], **more)


class LateCommands(MutableMapping[str, click.Command]):
    """Commands by name, each imported when somebody asks for it: to import all takes longer than most of them run."""

    def __init__(self, places: Mapping[str, tuple[str, str]], prepare: Callable[[click.Command], object]) -> None:
        """`places`: the module of each, and its name there."""
        self._found: dict[str, click.Command | tuple[str, str]] = dict(places)
        self._prepare = prepare

    def __getitem__(self, name: str) -> click.Command:
        one = self._found[name]
        if isinstance(one, tuple):
            module, attribute = one
            self._found[name] = one = getattr(import_module(module), attribute)
            self._prepare(one)
        return one

    def __setitem__(self, name: str, one: click.Command) -> None:
        self._found[name] = one

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class Commands(click.Group):
    """A group that knows which command may be meant."""

    command_class = Command

    def command(self, *words: Any, **attributes: Any) -> Made:  # type: ignore[override]
        """A command of this name, and the examples of its help."""
        return super().command(*words[:1], epilog=_examples(words[1:]), **attributes)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            inside = [f"{group} {name}" for group, one in self.commands.items() if _has(one, name)]
            meant = f"; did you mean {' or '.join(inside)}?" if inside else nearest(name, self.list_commands(ctx))
            raise click.UsageError(f"there is no command {name!r:.60}{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each command, whole: click cuts it where a line ends."""
        found = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(200)) for name, one in found if not one.hidden])


def command(name: str, *examples: str, cls: type[Command] = Command, **attributes: Any) -> Made:
    """A command of this name, and the examples of its help."""
    return click.command(name, cls=cls, epilog=_examples(examples), **attributes)


def group(name: str, *examples: str, of: type[Command] = Command, **attributes: Any) -> Callable[..., Commands]:
    """A group of commands of one class."""

    def made(about: Callable[..., Any]) -> Commands:
        found = click.group(name, cls=Commands, no_args_is_help=False, epilog=_examples(examples), **attributes)(about)
        found.command_class = of
        return found

    return made


def _has(one: click.Command, name: str) -> bool:
    return isinstance(one, click.Group) and name in one.commands


def _examples(lines: Sequence[str]) -> str:
    """The end of a command's help, each line as it is typed."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
