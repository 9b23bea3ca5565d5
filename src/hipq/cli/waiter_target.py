"""Which waiter a command means: the one at MODULE:APP, or one made of options and of [waiter] in hipq.toml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from hipq import config
from hipq.cli.commands import is_typed
from hipq.cli.complete import WAITER_QUEUE
from hipq.cli.target import AppCommand, load_any
from hipq.errors import Invalid

if TYPE_CHECKING:
    from hipq.waiter import Waiter

_OPTIONS: Final = {
    "table": click.Option(
        ["--table"], metavar="NAME", help="One table for all queues, instead of one named like each."
    ),
    "scheduler": click.Option(["--scheduler"], metavar="VALUE", help="The hash value of all items in the tables."),
    "region": click.Option(["--region"], help="Of AWS; else $AWS_DEFAULT_REGION, or what ~/.aws says."),
    "endpoint_url": click.Option(
        ["--endpoint-url"], metavar="URL", help="Another server than Amazon's; else $AWS_ENDPOINT_URL."
    ),
}
"""What makes a waiter, as options of every command that needs no code."""


class WaiterCommand(AppCommand):
    """A command whose first argument may be MODULE:APP, and which gets a `WaiterTarget`. No queue's name has a colon in
    it. With `made=False` it needs the code: no options can stand in for that."""

    def __init__(self, name: str, *, params: Sequence[click.Parameter] = (), made: bool = True, **more: Any) -> None:
        options = _OPTIONS.values() if made else ()
        super().__init__(name, params=[*options, *params], db=False, **more)
        takes_queue = any(one.name == "queue" for one in self.params)
        self.too_much = "" if takes_queue else "a Waiter is given as MODULE:APP, like shop:waiter"

    def usual(self, *, asks_nothing: bool) -> str:  # noqa: ARG002 (options stand in for MODULE:APP)
        return ""

    def hand_over(self, ctx: click.Context) -> None:
        options = {name: ctx.params.pop(name, None) for name in _OPTIONS}
        ctx.params["target"] = WaiterTarget(ctx.params.pop("app"), options)


class WaiterTarget:
    def __init__(self, app: str, options: dict[str, str | None]) -> None:
        self.app, self._options = app, options

    def waiter(self, queues: tuple[str, ...] = ()) -> Waiter:
        """The waiter that is meant. `queues`: those of the command line; none = what MODULE:APP or hipq.toml says."""
        if self.app:
            if typed := next(filter(is_typed, _OPTIONS), None):
                said = f"{self.app} says itself what --{typed.replace('_', '-')} would: leave one of them out"
                raise click.UsageError(said, click.get_current_context())
            return self.loaded()
        from hipq.waiter import Waiter

        given: dict[str, Any] = {name: value for name, value in self._options.items() if value is not None}
        return Waiter(queues or self.queues, **given)

    @property
    def queues(self) -> tuple[str, ...]:
        """Those of hipq.toml."""
        return tuple(config.read().settings.waiter.queues or ())

    def with_queues(self, queues: tuple[str, ...]) -> Waiter:
        """The waiter, which must have queues."""
        found = self.waiter(queues)
        if not (queues or found.queues):
            raise Invalid("say which queues: their names, MODULE:APP, or queues of [waiter] in hipq.toml")
        return found

    def loaded(self) -> Waiter:
        """The waiter with its code."""
        from hipq.waiter import Waiter

        if not self.app:
            said = "say where your Waiter is: MODULE:APP first, like shop:waiter"
            raise click.UsageError(said, click.get_current_context())
        return load_any(self.app, Waiter)


def configured() -> dict[str, str | None]:
    """What [waiter] of hipq.toml says, for a command that has no such options."""
    return {name: getattr(config.read().settings.waiter, name) for name in _OPTIONS}


queue_argument = click.argument("queue", metavar="QUEUE", type=WAITER_QUEUE)
queues_argument = click.argument("queues", metavar="[QUEUE]...", nargs=-1, type=WAITER_QUEUE)
