"""`hipq signing`: the keys that callback URLs are signed with. Their secrets are never shown."""

from __future__ import annotations

from typing import Any

import click

from hipq import Hipq, NotFound
from hipq.callback.signing import LIVE, SIGNS_AFTER, KeyInfo
from hipq.cli.commands import Commands, examples
from hipq.cli.progress import confirm, yes_option
from hipq.cli.show import print_json, print_table
from hipq.cli.target import AppCommand, app_argument, db_option, instances, json_option
from hipq.errors import Invalid
from hipq.job.when import to_datetime

SIGNS = "signs"
SIGNS_SOON = "signs soon"
CHECKS = "checks"


@click.group(
    cls=Commands,
    no_args_is_help=False,
    epilog=examples(
        "hipq signing list shop:app", "hipq signing rotate shop:app", "hipq signing drop shop:app 5f3a9c01"
    ),
)
def signing() -> None:
    """Look at the keys that callback URLs are signed with, and change them."""


@signing.command(
    "list",
    cls=AppCommand,
    epilog=examples("hipq signing list shop:app", "hipq signing list --db sqlite:///shop.db --json"),
)
@app_argument
@db_option
@json_option
def list_keys(app: str, db: str | None, as_json: bool) -> None:
    """The keys that live: when each was made, and what it is used for. Never its secret."""
    rows = [row for one in instances(app, db) for row in _rows(one)]
    if as_json:
        print_json(rows)
    else:
        print_table(("app", "key", "made", "use"), rows, none="keys")


@signing.command(
    "rotate",
    cls=AppCommand,
    epilog=examples("hipq signing rotate shop:app", "hipq signing rotate shop:app --yes --json"),
)
@app_argument
@yes_option
@db_option
@json_option
def rotate(app: str, yes: bool, db: str | None, as_json: bool) -> None:
    """Add a key. It signs a minute from now, when all processes know it. Two keys may live: what the one before has
    signed stays good, and what the one before that has signed does not."""
    target = _one(instances(app, db))
    before = target.signer.keys()
    if len(before) >= LIVE:
        confirm(f"This drops the key {before[0].id}: callback URLs that it signed will be refused. Go on?", yes)
    new = target.signer.rotate()
    after = target.signer.keys()
    dropped = [key.id for key in before if key not in after]
    if as_json:
        print_json({"app": target.name, "key": new.id, "dropped": dropped})
        return
    click.echo(f"key {new.id} signs a minute from now")
    for job_id in dropped:
        click.echo(f"dropped key {job_id}")


@signing.command(
    "drop",
    cls=AppCommand,
    epilog=examples("hipq signing drop shop:app 5f3a9c01", "hipq signing drop --db sqlite:///shop.db 5f3a9c01 --yes"),
)
@app_argument
@click.argument("key", metavar="KEY")
@yes_option
@db_option
@json_option
def drop(app: str, key: str, yes: bool, db: str | None, as_json: bool) -> None:
    """Refuse all that KEY has signed: for a secret that became known. Processes that run go by it within half a minute.
    If it was the only one, there is a new one at once."""
    target = next((one for one in instances(app, db) if key in [row["key"] for row in _rows(one)]), None)
    if target is None:
        raise NotFound(f"there is no signing key {key!r:.40} here")
    confirm(f"Drop the key {key}? Callback URLs that it signed will be refused.", yes)
    target.signer.drop(key)
    if as_json:
        print_json({"app": target.name, "dropped": [key]})
    else:
        click.echo(f"dropped key {key}")


def _rows(app: Hipq) -> list[dict[str, Any]]:
    keys = app.signer.keys()
    return [
        {"app": app.name, "key": key.id, "made": to_datetime(key.made), "use": use}
        for key, use in zip(keys, _uses(keys, app.store.now()), strict=True)
    ]


def _uses(keys: list[KeyInfo], now: int) -> list[str]:
    old = [key for key in keys if key.made <= now - SIGNS_AFTER]
    signs = old[-1] if old else keys[0]
    return [SIGNS if key == signs else CHECKS if key in old else SIGNS_SOON for key in keys]


def _one(apps: list[Hipq]) -> Hipq:
    if len(apps) != 1:
        there = ", ".join(one.name for one in apps)
        raise Invalid(
            f"this database has several instances ({there}): say which, by MODULE:APP"
            if apps
            else "nothing is registered in this database"
        )
    return apps[0]
