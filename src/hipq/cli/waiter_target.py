"""Which waiter a command means: the one at MODULE:APP, or one made of options and of [waiter] in hipq.toml."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from hipq.cli.complete import WaiterQueueName
from hipq.cli.show import GIVEN
from hipq.cli.target import first_word, load_any
from hipq.errors import Invalid

if TYPE_CHECKING:
    from hipq.waiter import Waiter

_OPTIONS: Final = ("table", "scheduler", "region", "endpoint_url")
"""What makes a waiter, as options of every command."""


class WaiterCommand(click.Command):
    """A command whose first argument may be MODULE:APP. No queue's name has a colon in it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[GIVEN] = list(args)
        if ctx.resilient_parsing and args and args[-1].startswith("-"):
            args = args[:-1]  # a shell completes its value, and without one MODULE:APP would be lost too
        first = first_word(self, ctx, args)
        if ":" not in first:
            args = ["", *args]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            takes_queue = any(one.name == "queue" for one in self.params)
            if "unexpected extra argument" in error.message and ":" not in first and not takes_queue:
                said = f"{first!r:.60} is too much; a Waiter is given as MODULE:APP, like shop:waiter"
                raise click.UsageError(said, ctx) from None
            raise


def which(command: Callable[..., Any]) -> Callable[..., Any]:
    """MODULE:APP first, and the options that stand in for it."""
    for option in (
        click.option("--endpoint-url", metavar="URL", help="Another server than Amazon's; else $AWS_ENDPOINT_URL."),
        click.option("--region", help="Of AWS; else $AWS_DEFAULT_REGION, or what ~/.aws says."),
        click.option("--scheduler", metavar="VALUE", help="The hash value of all items in the tables."),
        click.option("--table", metavar="NAME", help="One table for all queues, instead of one named like each."),
        click.argument("app", metavar="[MODULE:APP]"),
    ):
        command = option(command)
    return command


queue_argument = click.argument("queue", metavar="QUEUE", type=WaiterQueueName())


def found(app: str, queues: tuple[str, ...] | None = None, **options: Any) -> Waiter:
    """The waiter that is meant. `queues`: those of the command line; none = what MODULE:APP or hipq.toml says."""
    context = click.get_current_context()
    if app:
        typed = [name for name in _OPTIONS if _is_typed(context, name)]
        if typed:
            option = typed[0].replace("_", "-")
            raise click.UsageError(f"{app} says itself what --{option} would: leave one of them out", context)
        return loaded(app)
    from hipq import config
    from hipq.waiter import Waiter

    usual = config.read().settings.waiter.queues or ()
    given = {name: options[name] for name in _OPTIONS if options.get(name) is not None}
    return Waiter(tuple(queues or usual), **given)


def loaded(app: str) -> Waiter:
    from hipq.waiter import Waiter

    if not app:
        raise click.UsageError(
            "say where your Waiter is: MODULE:APP first, like shop:waiter", click.get_current_context()
        )
    return load_any(app, Waiter)


def needs_queues(waiter: Waiter) -> Waiter:
    if not waiter.queues:
        raise Invalid("say which queues: their names, MODULE:APP, or queues of [waiter] in hipq.toml")
    return waiter


def _is_typed(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
