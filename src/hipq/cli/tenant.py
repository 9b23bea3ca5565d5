"""`hipq tenant`: who may use the daemons of a database, and how much."""

from __future__ import annotations

from typing import Final

import click

from hipq.cli.audited import did
from hipq.cli.commands import Decorator, group, together, yes_option
from hipq.cli.inputs import Whole
from hipq.cli.progress import confirm
from hipq.cli.show import print_lines, print_table, say, say_table
from hipq.cli.target import daemon_db_option
from hipq.cli.tenancy import TOKEN_COLUMNS, show_token, tenants_of, token_file_option, token_rows, token_written_to
from hipq.daemon.tenancy.tenants import Quotas, described

_QUOTAS: Final = {
    "weight": "Its share of the work, beside other tenants: 1 to 1000.",
    "waiting": "Most jobs that have not ended, and answers that no job has taken; 0: any number.",
    "running": "Most jobs that run at the same time; 0: any number.",
    "bytes": "Most bytes of jobs that have not ended and such answers; 0: any number.",
    "rate": "Most jobs and answers added per second at each daemon; 0: any number.",
    "kept": "Most bytes of ended jobs, with their results; 0: any number.",
    "requests": "Most other requests per second at each daemon; 0: any number.",
}


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
    "hipq tenant set acme --weight 3",
    "hipq tenant list --db postgresql://ann@localhost/hipq",
)
def tenant() -> None:
    """Add tenants to a daemon, and set how much each may use."""


@tenant.command("add", "hipq tenant add acme --token-file token", "hipq tenant add acme --weight 3")
@click.argument("name")
@click.option("--again", is_flag=True, help="Bring back a tenant that was removed, with the jobs it still has.")
@_quota_options(0)
@token_file_option
@daemon_db_option
def add(name: str, again: bool, weight: int, token_file: str | None, db: str | None, **quotas: int) -> None:
    """Add a tenant, and make its first token, which is shown now and never again. Its name is 1 to 60 letters, digits,
    underscores and dots. The token may do all that a tenant can: `hipq token create` makes such as may do less."""
    tenants = tenants_of(db, new=True)
    with token_written_to(token_file) as file:
        tenants.add(name, weight=weight, quotas=Quotas(**quotas), again=again)
        made = tenants.token(name)
        show_token(name, *made, token_file, file)
    did(tenants.store, token=made[0].id)


@tenant.command("list", "hipq tenant list", "hipq tenant list --json")
@daemon_db_option
def list_tenants(db: str | None) -> None:
    """The tenants there are, what they may have, and how many tokens."""
    rows = [described(one) for one in tenants_of(db).list()]
    say_table(rows, "tenant", *_QUOTAS, "tokens", "made", none="tenants")


@tenant.command("show", "hipq tenant show acme", "hipq tenant show acme --json")
@click.argument("name")
@daemon_db_option
def show(name: str, db: str | None) -> None:
    """One tenant, and its tokens: what each may do, until when, and when it was used last. Never the token itself."""
    tenants = tenants_of(db)
    found = described(tenants.get(name)) | {"tokens": tenants.tokens(name)}

    def printed() -> None:
        print_lines({field: value for field, value in found.items() if field != "tokens"})
        print_table(TOKEN_COLUMNS, token_rows(found["tokens"]), none="tokens")

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
    tenants = tenants_of(db)
    row = described(tenants.set(name, **quotas))
    did(tenants.store)
    say(row, lambda: print_lines(row))


@tenant.command("remove", "hipq tenant remove acme", "hipq tenant remove acme --yes --json")
@click.argument("name")
@yes_option
@daemon_db_option
def remove(name: str, db: str | None) -> None:
    """Remove a tenant and all its tokens. Its jobs stay, and those that wait still run; so its name is not given to
    anybody else, unless by `hipq tenant add NAME --again`."""
    tenants = tenants_of(db)
    found = tenants.get(name)
    confirm(f"Remove the tenant {name}, and its tokens ({len(found.tokens)})?")
    tenants.remove(name)
    did(tenants.store)
    say({"removed": name}, f"removed tenant {name}")
