"""`hipq tenant`: who may use the daemons of a database, with which tokens, and how much. Tokens are shown once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from hipq import files
from hipq.cli.commands import Decorator, asked, group, together, yes_option
from hipq.cli.complain import note
from hipq.cli.inputs import Whole
from hipq.cli.progress import confirm
from hipq.cli.show import print_json, print_lines, print_table, say
from hipq.cli.target import daemon_database, daemon_db_option, shown
from hipq.daemon.tenancy.tenants import ADMIN, Quotas, Tenants, Token, described
from hipq.errors import Invalid
from hipq.job.when import to_datetime
from hipq.stores.open import open_store

_QUOTAS: Final = {
    "weight": "Its share of the work, beside other tenants: 1 to 1000.",
    "waiting": "Jobs it may have waiting, with answers that wait for theirs; 0: any number.",
    "running": "Jobs it may have running at once; 0: any number.",
    "bytes": "Bytes of those; 0: any number.",
    "rate": "Jobs and answers it may add in a second at each daemon; 0: any number.",
    "kept": "Bytes of its jobs that have ended, with their results; 0: any number.",
    "requests": "Other requests it may make in a second at each daemon; 0: any number.",
}
_token_file_option = click.option("--token-file", metavar="FILE", help="Write the token to this new file, which only "
                                  "you can read, and do not show it.")  # fmt: skip


def _quota_options(default: int | None) -> Decorator:
    def option(name: str) -> Decorator:
        least, most = (1, 1000) if name == "weight" else (0, 10**12)
        usual = None if default is None else max(least, default)
        return click.option(f"--{name}", type=Whole(name, least, most), default=usual, show_default=usual is not None,
                            help=_QUOTAS[name])  # fmt: skip

    return together(*map(option, _QUOTAS))


@group(
    "tenant",
    "hipq tenant add acme --waiting 100000 --rate 500",
    "hipq tenant token acme --note 'the web shop'",
    "hipq tenant list --db postgresql://ann@localhost/hipq",
)
def tenant() -> None:
    """Say who may use a daemon, with which tokens, and how much."""


@tenant.command(
    "add", "hipq tenant add acme --token-file token", "hipq tenant add acme --weight 3", "hipq tenant add --admin"
)
@click.argument("name", required=False)
@click.option("--admin", is_flag=True, help="No tenant, but a token that may act for every one and read /metrics.")
@click.option("--again", is_flag=True, help="Bring back a tenant that was removed, with the jobs it still has.")
@_quota_options(0)
@_token_file_option
@daemon_db_option
def add(
    name: str | None, admin: bool, again: bool, weight: int, token_file: str | None, db: str | None, **quotas: int
) -> None:
    """Add a tenant, and make its first token, which is shown now and never again. Its name is 1 to 60 letters, digits,
    underscores and dots."""
    owner = _name(name, admin)
    tenants = _tenants(db, new=True)
    with _written_to(token_file) as file:
        if name is not None:
            tenants.add(name, weight=weight, quotas=Quotas(**quotas), again=again)
        _show_token(owner, *tenants.token(owner), token_file, file)


@tenant.command("list", "hipq tenant list", "hipq tenant list --json")
@daemon_db_option
def list_tenants(db: str | None) -> None:
    """The tenants there are, what they may have, and how many tokens."""
    rows = [described(one) for one in _tenants(db).list()]
    columns = ("tenant", *_QUOTAS, "tokens", "made")
    counted = [{**row, "tokens": len(row["tokens"])} for row in rows]
    say(rows, lambda: print_table(columns, counted, none="tenants"))


@tenant.command("show", "hipq tenant show acme", "hipq tenant show --admin")
@click.argument("name", required=False)
@click.option("--admin", is_flag=True, help="The tokens that may act for every tenant.")
@daemon_db_option
def show(name: str | None, admin: bool, db: str | None) -> None:
    """One tenant, and its tokens: when each was made, and what for. Never the token itself."""
    found = described(_tenants(db).get(_name(name, admin)))
    if admin:
        found = {"tokens": found["tokens"]}

    def printed() -> None:
        print_lines({field: value for field, value in found.items() if field != "tokens"})
        print_table(("id", "made", "note"), found["tokens"], none="tokens")

    say(found, printed)


@tenant.command("set", "hipq tenant set acme --rate 100", "hipq tenant set acme --weight 5 --waiting 0")
@click.argument("name")
@_quota_options(None)
@daemon_db_option
def change(name: str, db: str | None, **quotas: int | None) -> None:
    """Change what a tenant may have. Daemons that run go by it within seconds."""
    if all(value is None for value in quotas.values()):
        raise click.UsageError(
            "say what to change: --weight, --waiting, --running, --bytes, --rate, --kept or --requests"
        )
    row = described(_tenants(db).set(name, **quotas))
    say(row, lambda: print_lines({**row, "tokens": len(row["tokens"])}))


@tenant.command(
    "token", "hipq tenant token acme", "hipq tenant token acme --note 'the web shop'", "hipq tenant token --admin"
)
@click.argument("name", required=False)
@click.option("--admin", is_flag=True, help="One that may act for every tenant and read /metrics.")
@click.option("--note", default="", help="What it is for.")
@_token_file_option
@daemon_db_option
def token(name: str | None, admin: bool, note: str, token_file: str | None, db: str | None) -> None:
    """Make a further token for a tenant. It is shown now and never again."""
    owner = _name(name, admin)
    tenants = _tenants(db)
    with _written_to(token_file) as file:
        _show_token(owner, *tenants.token(owner, note), token_file, file)


@tenant.command("revoke", "hipq tenant revoke acme 5f3a9c01", "hipq tenant revoke --admin 5f3a9c01")
@click.argument("names", metavar="NAME TOKEN-ID", nargs=-1, required=True)
@click.option("--admin", is_flag=True, help="A token that may act for every tenant: without NAME.")
@daemon_db_option
def revoke(names: tuple[str, ...], admin: bool, db: str | None) -> None:
    """Let a token be good for nothing: at every daemon within a second."""
    if len(names) != (1 if admin else 2):
        raise click.UsageError("say NAME and TOKEN-ID, or --admin and TOKEN-ID")
    owner, token_id = (ADMIN, names[0]) if admin else names
    _tenants(db).revoke(owner, token_id)
    say({"tenant": None if admin else owner, "revoked": token_id}, f"revoked token {token_id}")


@tenant.command("remove", "hipq tenant remove acme", "hipq tenant remove acme --yes --json")
@click.argument("name")
@yes_option
@daemon_db_option
def remove(name: str, db: str | None) -> None:
    """Remove a tenant and all its tokens. Its jobs stay, and those that wait still run; so its name is not given to
    anybody else, unless by `hipq tenant add NAME --again`."""
    tenants = _tenants(db)
    found = tenants.get(name)
    confirm(f"Remove the tenant {name}, and its tokens ({len(found.tokens)})?")
    tenants.remove(name)
    say({"removed": name}, f"removed tenant {name}")


# -- what they share -------------------------------------------------------------------------------------------------
def _tenants(db: str | None, *, new: bool = False) -> Tenants:
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


def _name(name: str | None, admin: bool) -> str:
    if admin == (name is not None):
        raise click.UsageError("say NAME, or --admin")
    return name or ADMIN


def _show_token(owner: str, made: Token, secret: str, path: str | None, file: int | None) -> None:
    """The one time that a token is seen: alone on standard output, so that a script can take it; or in a file."""
    if file is not None:
        os.write(file, secret.encode() + b"\n")
        os.fsync(file)
    tenant, whose = (None, "an admin") if owner == ADMIN else (owner, owner)
    if asked("json"):
        shown_in = {"token_file": path} if path is not None else {"token": secret}
        print_json({"tenant": tenant, "id": made.id, **shown_in, "made": to_datetime(made.made)})
    elif path is not None:
        note(f"token {made.id} of {whose} is in {path}")
    else:
        note(f"token {made.id} of {whose}, shown this once:")
        click.echo(secret)


@contextmanager
def _written_to(path: str | None) -> Iterator[int | None]:
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
