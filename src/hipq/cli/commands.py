"""What all commands have in common: a typo is told what may be meant, and help ends with examples."""

from __future__ import annotations

from typing import Any

import click

from hipq.cli.complain import nearest


class Commands(click.Group):
    """A group that knows which command may be meant."""

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


def _has(command: click.Command, name: str) -> bool:
    return isinstance(command, click.Group) and name in command.commands


def examples(*lines: str) -> str:
    """The end of a command's help, each line as it is typed."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
