"""`hipq tenant`: who may use the daemons of a database, with which tokens, and how much. Tokens are shown once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from hipq import files
from hipq.cli.commands import Commands, examples
from hipq.cli.complain import note
from hipq.cli.inputs import Whole
from hipq.cli.progress import confirm, yes_option
from hipq.cli.show import print_json, print_lines, print_table
from hipq.cli.target import given_db, json_option, shown, usual_database
from hipq.daemon.tenancy.tenants import ADMIN, Quotas, Tenant, Tenants, Token, described
from hipq.errors import Invalid
from hipq.job.when import to_datetime
from hipq.stores.open import open_store

USUAL = "sqlite:///daemon.db"
"""The database of `hipq serve`, if nothing says which."""
_MOST = 10**12


db_option = click.option(
    "--db", metavar="URL", callback=given_db,
    help="The daemon's database; else $HIPQ_DATABASE_URL, or database of hipq.toml, or daemon.db.",
)  # fmt: skip

token_file_option = click.option(
    "--token-file", metavar="FILE",
    help="Write the token to this new file, which only you can read, and do not show it.",
)  # fmt: skip


def _quota_options(default: int | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    abouts = {
        "weight": "Its share of the work, beside other tenants: 1 to 1000.",
        "waiting": "Jobs it may have waiting, with answers that wait for theirs; 0: any number.",
        "running": "Jobs it may have running at once; 0: any number.",
        "bytes": "Bytes of those; 0: any number.",
        "rate": "Jobs and answers it may add in a second at each daemon; 0: any number.",
        "kept": "Bytes of its jobs that have ended, with their results; 0: any number.",
        "requests": "Other requests it may make in a second at each daemon; 0: any number.",
    }

    def wrap(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(abouts):
            first = 1 if name == "weight" else default
            kind = Whole(name, 1, 1000) if name == "weight" else Whole(name, 0, _MOST)
            command = click.option(f"--{name}", type=kind, default=None if default is None else first,
                                   show_default=default is not None, help=abouts[name])(command)  # fmt: skip
        return command

    return wrap


@click.group(
    cls=Commands,
    no_args_is_help=False,
    epilog=examples(
        "hipq tenant add acme --waiting 100000 --rate 500",
        "hipq tenant token acme --note 'the web shop'",
        "hipq tenant list --db postgresql://ann@localhost/hipq",
    ),
)
def tenant() -> None:
    """Say who may use a daemon, with which tokens, and how much."""


@tenant.command("add", epilog=examples("hipq tenant add acme --token-file token", "hipq tenant add acme --weight 3",
                                       "hipq tenant add --admin"))  # fmt: skip
@click.argument("name", required=False)
@click.option("--admin", is_flag=True, help="No tenant, but a token that may act for every one and read /metrics.")
@click.option("--again", is_flag=True, help="Bring back a tenant that was removed, with the jobs it still has.")
@_quota_options(0)
@token_file_option
@db_option
@json_option
def add(
    name: str | None, admin: bool, again: bool, weight: int, token_file: str | None, db: str | None, as_json: bool,
    **quotas: int,
) -> None:  # fmt: skip
    """Add a tenant, and make its first token, which is shown now and never again. Its name is 1 to 60 letters, digits,
    underscores and dots."""
    if admin == (name is not None):
        raise click.UsageError("say NAME, or --admin")
    tenants = _tenants(db, new=True)
    with _written_to(token_file) as file:
        if name is not None:
            tenants.add(name, weight=weight, quotas=Quotas(**quotas), again=again)
        _show_token(name or ADMIN, *tenants.token(name or ADMIN), as_json, file)


@tenant.command("list", epilog=examples("hipq tenant list", "hipq tenant list --json"))
@db_option
@json_option
def list_tenants(db: str | None, as_json: bool) -> None:
    """The tenants there are, what they may have, and how many tokens."""
    rows = [described(one) for one in _tenants(db).list()]
    if as_json:
        print_json(rows)
        return
    columns = ("tenant", "weight", "waiting", "running", "bytes", "rate", "kept", "requests", "tokens", "made")
    print_table(columns, [{**row, "tokens": len(row["tokens"])} for row in rows], none="tenants")


@tenant.command("show", epilog=examples("hipq tenant show acme", "hipq tenant show --admin"))
@click.argument("name", required=False)
@click.option("--admin", is_flag=True, help="The tokens that may act for every tenant.")
@db_option
@json_option
def show(name: str | None, admin: bool, db: str | None, as_json: bool) -> None:
    """One tenant, and its tokens: when each was made, and what for. Never the token itself."""
    found = described(_tenants(db).get(_name(name, admin)))
    if admin:
        found = {"tokens": found["tokens"]}
    if as_json:
        print_json(found)
        return
    tokens = found.pop("tokens")
    print_lines(found)
    print_table(("id", "made", "note"), tokens, none="tokens")


@tenant.command(
    "set", epilog=examples("hipq tenant set acme --rate 100", "hipq tenant set acme --weight 5 --waiting 0")
)
@click.argument("name")
@_quota_options(None)
@db_option
@json_option
def change(name: str, weight: int | None, db: str | None, as_json: bool, **quotas: int | None) -> None:
    """Change what a tenant may have. Daemons that run go by it within seconds."""
    if weight is None and all(value is None for value in quotas.values()):
        raise click.UsageError(
            "say what to change: --weight, --waiting, --running, --bytes, --rate, --kept or --requests"
        )
    _show(_tenants(db).set(name, weight=weight, **quotas), as_json)


@tenant.command("token", epilog=examples("hipq tenant token acme", "hipq tenant token acme --note 'the web shop'",
                                         "hipq tenant token --admin"))  # fmt: skip
@click.argument("name", required=False)
@click.option("--admin", is_flag=True, help="One that may act for every tenant and read /metrics.")
@click.option("--note", default="", help="What it is for.")
@token_file_option
@db_option
@json_option
def token(
    name: str | None, admin: bool, note: str, token_file: str | None, db: str | None, as_json: bool
) -> None:  # fmt: skip
    """Make a further token for a tenant. It is shown now and never again."""
    owner = _name(name, admin)
    tenants = _tenants(db)
    with _written_to(token_file) as file:
        _show_token(owner, *tenants.token(owner, note), as_json, file)


@tenant.command("revoke", epilog=examples("hipq tenant revoke acme 5f3a9c01", "hipq tenant revoke --admin 5f3a9c01"))
@click.argument("names", metavar="NAME TOKEN-ID", nargs=-1, required=True)
@click.option("--admin", is_flag=True, help="A token that may act for every tenant: without NAME.")
@db_option
@json_option
def revoke(names: tuple[str, ...], admin: bool, db: str | None, as_json: bool) -> None:
    """Let a token be good for nothing: at every daemon within a second."""
    if len(names) != (1 if admin else 2):
        raise click.UsageError("say NAME and TOKEN-ID, or --admin and TOKEN-ID")
    owner, job_id = (ADMIN, names[0]) if admin else names
    _tenants(db).revoke(owner, job_id)
    if as_json:
        print_json({"tenant": None if admin else owner, "revoked": job_id})
    else:
        click.echo(f"revoked token {job_id}")


@tenant.command("remove", epilog=examples("hipq tenant remove acme", "hipq tenant remove acme --yes --json"))
@click.argument("name")
@yes_option
@db_option
@json_option
def remove(name: str, yes: bool, db: str | None, as_json: bool) -> None:
    """Remove a tenant and all its tokens. Its jobs stay, and those that wait still run; so its name is not given to
    anybody else, unless by `hipq tenant add NAME --again`."""
    tenants = _tenants(db)
    found = tenants.get(name)
    confirm(f"Remove the tenant {name}, and its tokens ({len(found.tokens)})?", yes)
    tenants.remove(name)
    if as_json:
        print_json({"removed": name})
    else:
        click.echo(f"removed tenant {name}")


# -- what they share -------------------------------------------------------------------------------------------------
def _tenants(db: str | None, *, new: bool = False) -> Tenants:
    """Those of a database; a file that is not there yet is made, if it is to be `new`."""
    url = db or usual_database() or USUAL
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


def _show(found: Tenant, as_json: bool) -> None:
    row = described(found)
    if as_json:
        print_json(row)
    else:
        print_lines({**row, "tokens": len(row["tokens"])})


def _show_token(owner: str, made: Token, secret: str, as_json: bool, file: TokenFile | None) -> None:
    """The one time that a token is seen: alone on standard output, so that a script can take it; or in a file."""
    if file:
        file.write(secret)
    if as_json:
        tenant = None if owner == ADMIN else owner
        shown_in = {"token_file": file.path} if file else {"token": secret}
        print_json({"tenant": tenant, "id": made.id, **shown_in, "made": to_datetime(made.made)})
        return
    whose = "an admin" if owner == ADMIN else owner
    if file:
        note(f"token {made.id} of {whose} is in {file.path}")
        return
    note(f"token {made.id} of {whose}, shown this once:")
    click.echo(secret)


class TokenFile:
    """A new file that nobody else can read, which is there before the token is: else a token could be lost."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = files.make(path, os.O_WRONLY | os.O_EXCL)
        except FileExistsError:
            raise Invalid(f"there is a file {path} already: a token gets a file of its own") from None
        except (OSError, ValueError) as error:
            raise Invalid(f"cannot write {path!r:.200}: {getattr(error, 'strerror', None) or error}") from None

    def write(self, secret: str) -> None:
        os.write(self._descriptor, secret.encode() + b"\n")
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def _written_to(path: str | None) -> Iterator[TokenFile | None]:
    """The file, if one is wanted; removed if there is no token for it."""
    if path is None:
        yield None
        return
    file = TokenFile(path)
    try:
        yield file
    except BaseException:
        os.unlink(path)
        raise
    finally:
        file.close()
