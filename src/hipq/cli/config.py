"""`hipq config`: what is in force, and who says so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from hipq.cli.commands import command
from hipq.cli.configured import of_file, options_of, said_of, variable
from hipq.cli.prune import prune
from hipq.cli.serve import serve
from hipq.cli.show import print_table, say
from hipq.cli.target import daemon_database, shown
from hipq.cli.waiter import DEFAULTS
from hipq.cli.worker import worker
from hipq.config import FILE, Found, read
from hipq.stores.password import without_password

_SECTIONS = {"worker": worker, "prune": prune}
_USUAL: dict[str, dict[str, Any]] = {
    **{section: {one.name or "": one.default for one in command.params} for section, command in _SECTIONS.items()},
    "waiter": DEFAULTS,
}
"""Of each section what holds if nobody says otherwise."""
_ENVIRONMENT = {"app": "HIPQ_APP", "database": "HIPQ_DATABASE_URL", "callback_url": "HIPQ_CALLBACK_URL"}


@command(
    "config",
    "hipq config",
    "hipq config --json",
    "hipq config serve --port 9000",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("words", metavar="[serve [OPTIONS]]", nargs=-1, type=click.UNPROCESSED)
def config(words: tuple[str, ...]) -> None:
    """Print the settings in force, and where each comes from.

    The command line goes first, then the environment, then hipq.toml (or [tool.hipq] in pyproject.toml) in this folder
    or one above it, up to the one with .git or the home folder; then the default. Passwords are not printed. With
    `serve` and its options it is what that command line would have.
    """
    if words and words[0] != "serve":
        raise click.UsageError(f"only `serve` can follow, with its options, not {words[0]!r:.60}")
    found = read()
    rows = [*(_general(found, name) for name in _ENVIRONMENT)]
    rows += [row for section in _USUAL for row in _rows(found, section)]
    rows += _of_serve(found, words[1:])
    say({"file": str(found.file) if found.file else None, "settings": rows}, lambda: _print(found, rows))


def _of_serve(found: Found, words: Sequence[str]) -> list[dict[str, Any]]:
    usual = of_file(serve, found, found.settings.serve)
    context = serve.make_context("serve", list(words), parent=click.get_current_context().parent, default_map=usual)
    rows = [_serve_db(found, context.params["db"])]
    for name, option in options_of(serve).items():
        source = {
            ParameterSource.COMMANDLINE: max(option.opts, key=len),
            ParameterSource.ENVIRONMENT: f"${variable(context, name)}",
            ParameterSource.DEFAULT_MAP: "file",
        }.get(context.get_parameter_source(name) or ParameterSource.DEFAULT, "default")
        rows.append({"setting": f"serve.{name}", "value": _visible(context.params[name]), "from": source})
    return rows


def _serve_db(found: Found, db: str | None) -> dict[str, Any]:
    """It is shown as it was given, also if it is wrong: who has to find that out looks here."""
    usual = _general(found, "database")
    if db or usual["from"] == "default":
        usual = {"value": shown(daemon_database(db)), "from": "--db" if db else "default"}
    return {**usual, "setting": "serve.db"}


def _visible(value: Any) -> Any:
    """A value without the password that a URL in it may have."""
    if isinstance(value, (list, tuple)):
        return ",".join(_visible(one) for one in value) or None
    return without_password(value) if isinstance(value, str) and "://" in value else value


def _print(found: Found, rows: list[dict[str, Any]]) -> None:
    click.echo(f"file: {found.file or f'none ({FILE} is in no folder from here up)'}")
    shown = [row | {"value": _text(row["value"])} for row in rows]
    print_table(("setting", "value", "from"), shown)


def _general(found: Found, name: str) -> dict[str, Any]:
    variable, in_file = _ENVIRONMENT[name], getattr(found.settings, name)
    value, source = in_file, "file" if in_file else "default"
    if os.environ.get(variable):
        value, source = os.environ[variable], f"${variable}"
    if name == "callback_url":
        value = _visible(value)
    if name == "database":
        value = shown(value) if value else "sqlite:///NAME.db, by the name of the application"
    return {"setting": name, "value": value, "from": source}


def _rows(found: Found, section: str) -> list[dict[str, Any]]:
    given = said_of(found, section)
    fields = msgspec.structs.fields(type(getattr(found.settings, section)))
    return [
        {
            "setting": f"{section}.{name}",
            "value": given.get(name, _plain(_USUAL[section].get(name))),
            "from": "file" if name in given else "default",
        }
        for name in (field.name for field in fields)
    ]


def _text(value: Any) -> str:
    """As somebody writes it in the file: what is no whole number is a duration, in seconds."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:g}s" if isinstance(value, float) else str(value)


def _plain(default: Any) -> Any:
    return default if isinstance(default, str | int | float) else None  # click has a mark of its own for "none"
