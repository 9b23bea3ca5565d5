"""`hipq migrate`: bring a database to this program's schema. SQLite does it by itself; PostgreSQL wants to be asked."""

from __future__ import annotations

import click

from hipq.app import Hipq
from hipq.cli.commands import examples
from hipq.cli.show import print_json
from hipq.cli.target import AppCommand, announced, app_argument, database, given_db, json_option, load


@click.command(
    cls=AppCommand,
    epilog=examples(
        "hipq migrate shop:app",
        "hipq migrate --db postgresql://ann@localhost/shop",
    ),
)
@app_argument
@click.option("--db", metavar="URL", callback=given_db, help="The database, instead of MODULE:APP.")
@json_option
def migrate(app: str, db: str | None, as_json: bool) -> None:
    """Create or update hipq's tables. SQLite does so by itself; on PostgreSQL run this once, and after an upgrade."""
    if app and db:
        raise click.UsageError("give MODULE:APP or --db, not both")
    target = announced(load(app) if app else Hipq("migrate", database(db)))
    applied = target.migrate()
    if as_json:
        print_json({"applied": applied})
    else:
        click.echo("\n".join(f"applied {name}" for name in applied) or "nothing to do: the schema is up to date")
