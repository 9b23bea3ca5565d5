"""What a command changes is in the audit log: who typed it, on which machine, and what."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from hipq.cli.commands import is_typed
from hipq.observe.auditing import record
from hipq.stores.protocols import Store

_NOT_SAID: Final = frozenset({"app", "db", "target", "data", "data_file", "token_file"})
"""Parameters that are not in the log: payloads, and what says where."""


ROLE: Final = "database"
"""By what right a command does its work: whoever types it can open the database."""


def audited(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command of a `target`: once it has done its work, that is in the audit log."""

    @wraps(command)
    def recorded(target: Any, **given: Any) -> Any:
        status = command(target=target, **given)
        did(target.store)
        return status

    return recorded


def did(store: Store, target: str = "", /, **details: object) -> None:
    """The command that runs has done its work. What was typed says to what, unless `target` does, and how; `details`
    are beside that."""
    context = click.get_current_context()
    kinds = {one.name: one.param_type_name for one in context.command.params}
    typed = {name: context.params[name] for name in kinds if name in context.params and name not in _NOT_SAID
             and is_typed(name)}  # fmt: skip
    target = target or " ".join(_text(value) for name, value in typed.items() if kinds[name] == "argument")
    options = {name: _text(value) for name, value in typed.items() if kinds[name] == "option"}
    action = context.command_path.partition(" ")[2]
    record(store, "command", user(), ROLE, socket.gethostname(), action, target, {**options, **details})


def user() -> str:
    """Who types, as the operating system has it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without users
        return "operator"


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
