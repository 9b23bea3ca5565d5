"""`hipq token`: who may call a daemon, and what with. A token is shown once, when it is made."""

from __future__ import annotations

from typing import Final

import click

from hipq.cli.audited import did
from hipq.cli.commands import group
from hipq.cli.inputs import Duration
from hipq.cli.show import print_table, say
from hipq.cli.target import daemon_db_option
from hipq.cli.tenancy import TOKEN_COLUMNS, show_token, tenants_of, token_file_option, token_rows, token_written_to
from hipq.daemon.tenancy.tokens import ABOUT, ALL_TENANTS, Role
from hipq.job.when import SECOND

_ROLES: Final = "; ".join(f"{role}: {about}" for role, about in ABOUT.items()).replace("`", "")


@group(
    "token",
    "hipq token create acme --role post --name 'the web shop'",
    "hipq token create --all-tenants --role metrics --expires 365d",
    "hipq token rotate 5f3a9c01b2d4",
)
def token() -> None:
    """Make and revoke tokens: who may call a daemon, for which tenant, and what for."""


@token.command(
    "create",
    "hipq token create acme --role post --role read --name 'the web shop'",
    "hipq token create acme --role deploy --expires 90d --token-file ci.token",
    "hipq token create --all-tenants --role admin",
)
@click.argument("tenant", required=False)
@click.option("--all-tenants", is_flag=True, help="One of an operator's, for every tenant there is or will be.")
@click.option("--role", "roles", multiple=True, required=True, type=click.Choice([*map(str, Role)]),
              help=f"What it may do; give several as --role A --role B. {_ROLES}.")  # fmt: skip
@click.option("--name", default="", help="What it is for, or who has it: the audit log says so.")
@click.option("--expires", type=Duration("expires"), help="When it stops working: after 12h, 90d.")
@token_file_option
@daemon_db_option
def create(
    tenant: str | None, all_tenants: bool, roles: tuple[str, ...], name: str, expires: float | None,
    token_file: str | None, db: str | None,
) -> None:  # fmt: skip
    """Make a token of TENANT, or of an operator. It is shown now and never again."""
    if all_tenants == (tenant is not None):
        raise click.UsageError("say TENANT, or --all-tenants")
    tenants, owner = tenants_of(db, new=all_tenants), tenant or ALL_TENANTS
    until = 0 if expires is None else tenants.store.now() + round(expires * SECOND)
    with token_written_to(token_file) as file:
        made = tenants.token(owner, name, roles, until)
        show_token(owner, *made, token_file, file)
    did(tenants.store, token=made[0].id)


@token.command("list", "hipq token list", "hipq token list acme --json")
@click.argument("tenant", required=False)
@daemon_db_option
def list_tokens(tenant: str | None, db: str | None) -> None:
    """The tokens of TENANT, or all there are: what each may do, until when, and when it was used last, to the minute.
    Never the token itself."""
    rows = tenants_of(db).tokens(tenant or "")
    say(rows, lambda: print_table(TOKEN_COLUMNS, token_rows(rows), none="tokens"))


@token.command("rotate", "hipq token rotate 5f3a9c01b2d4", "hipq token rotate 5f3a9c01b2d4 --overlap 1h")
@click.argument("token_id", metavar="ID")
@click.option("--overlap", type=Duration("overlap"), default="1d", show_default=True,
              help="How long the old one is still good; 0: it ends now.")  # fmt: skip
@token_file_option
@daemon_db_option
def rotate(token_id: str, overlap: float, token_file: str | None, db: str | None) -> None:
    """Replace the token with this ID by a new one with the same roles. Both work for a while, so that you can put the
    new one where the old one is used. If the old one was to expire, the new one lives as long again."""
    tenants = tenants_of(db)
    with token_written_to(token_file) as file:
        owner, old = tenants.held(token_id)
        made = tenants.rotate(owner, token_id, overlap)
        show_token(owner, *made, token_file, file)
    did(tenants.store, old.label, tenant=owner, token=made[0].id)


@token.command("revoke", "hipq token revoke 5f3a9c01b2d4")
@click.argument("token_id", metavar="ID")
@daemon_db_option
def revoke(token_id: str, db: str | None) -> None:
    """Revoke the token with this ID: it stops working at every daemon within a second."""
    tenants = tenants_of(db)
    owner, gone = tenants.held(token_id)
    tenants.revoke(owner, token_id)
    did(tenants.store, gone.label, tenant=owner)
    say({"revoked": token_id}, f"revoked token {token_id}")
