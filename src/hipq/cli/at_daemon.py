"""What commands share that ask a daemon over HTTP: where it is, and by which token."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from hipq.cli.commands import Decorator, together
from hipq.errors import Invalid, Unauthorized

if TYPE_CHECKING:
    from hipq.client import Client

URL: Final = "HIPQ_DAEMON_URL"
TOKEN: Final = "HIPQ_TOKEN"
_PATIENCE: Final = 5.0
"""Seconds for which a daemon that is not there is asked again."""


def daemon_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--url, --token-file and --tenant: a command gets a `client` instead."""

    @wraps(command)
    def connected(url: str | None, token_file: str | None, tenant: str | None, **given: Any) -> Any:
        with _client(url, token := _token(token_file), tenant) as client:
            try:
                return command(client=client, **given)
            except Unauthorized as error:
                raise error if token else Unauthorized(f"a token is needed: --token-file FILE, or ${TOKEN}") from None

    options: Decorator = together(
        click.option("--url", metavar="URL", help=f"The daemon; else ${URL}, or http://127.0.0.1:8000."),
        click.option("--token-file", metavar="FILE", help=f"The file that has your token; else ${TOKEN} is it."),
        click.option("--tenant", metavar="NAME", help="Whose, with an operator's token or without any."),
    )
    return options(connected)


def _client(url: str | None, token: str, tenant: str | None) -> Client:
    from hipq.client import Client

    where = url or os.environ.get(URL) or "http://127.0.0.1:8000"
    return Client(where, token, tenant=tenant or "", patience=_PATIENCE)


def _token(file: str | None) -> str:
    if file is None:
        return os.environ.get(TOKEN, "")
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise Invalid(f"the token file {file} cannot be read: {why}") from None
