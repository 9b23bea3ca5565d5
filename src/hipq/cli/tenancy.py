"""What `hipq tenant` and `hipq token` share: the tenants of a database, and how a token is shown, once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from hipq import files
from hipq.cli.commands import asked
from hipq.cli.complain import note
from hipq.cli.show import print_json
from hipq.cli.target import daemon_database, shown
from hipq.daemon.tenancy.tenants import Tenants
from hipq.daemon.tenancy.tokens import ALL_TENANTS, Token, token_json
from hipq.errors import Invalid
from hipq.stores.open import open_store

TOKEN_COLUMNS: Final = ("id", "tenant", "name", "roles", "made", "expires", "used")
token_file_option = click.option("--token-file", metavar="FILE", help="Write the token to this new file, which only "
                                 "you can read, and do not show it.")  # fmt: skip


def token_rows(tokens: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For a table."""
    return [one | {"tenant": one["tenant"] or "all tenants", "roles": " ".join(one["roles"])} for one in tokens]


def tenants_of(db: str | None, *, new: bool = False) -> Tenants:
    """Those of a database; a file that is not there yet is made, if it is to be `new`."""
    url = daemon_database(db)
    note(f"database: {shown(url)}")
    path = url.removeprefix("sqlite:///")
    if not new and path != url and path != ":memory:" and not os.path.exists(path):  # opening it would make one
        raise Invalid(f"there is no database file {os.path.abspath(path)}; `hipq tenant add` makes one")
    store = open_store(url)
    if new and path != url:
        store.migrate()
    click.get_current_context().call_on_close(store.close)
    return Tenants(store)


def show_token(owner: str, made: Token, secret: str, path: str | None, file: int | None) -> None:
    """The one time that a token is seen: alone on standard output, so that a script can take it; or in a file."""
    if file is not None:
        os.write(file, secret.encode() + b"\n")
        os.fsync(file)
    whose = "operators" if owner == ALL_TENANTS else owner
    if asked("json"):
        shown_in = {"token_file": path} if path is not None else {"token": secret}
        print_json(token_json(owner, made) | shown_in)
    elif path is not None:
        note(f"token {made.id} of {whose} is in {path}")
    else:
        note(f"token {made.id} of {whose}, shown this once:")
        click.echo(secret)


@contextmanager
def token_written_to(path: str | None) -> Iterator[int | None]:
    """The descriptor of a new file that nobody else can read, if one is wanted. It is there before the token is, which
    could be lost otherwise; and it is removed if there is no token for it."""
    if path is None:
        yield None
        return
    try:
        descriptor = files.make(path, os.O_WRONLY | os.O_EXCL)
    except FileExistsError:
        raise Invalid(f"there is a file {path} already: a token gets a file of its own") from None
    except (OSError, ValueError) as error:
        raise Invalid(f"cannot write {path!r:.200}: {getattr(error, 'strerror', None) or error}") from None
    try:
        yield descriptor
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
