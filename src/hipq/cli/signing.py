"""`hipq signing`: the keys that callback URLs are signed with. Their secrets are never shown."""

from __future__ import annotations

from typing import Any

import click

from hipq import Hipq, NotFound
from hipq.callback.signing import LIVE, SIGNS_AFTER, KeyInfo
from hipq.cli.audited import audited
from hipq.cli.commands import group, yes_option
from hipq.cli.progress import confirm
from hipq.cli.show import say, say_table
from hipq.cli.target import AppCommand, Target
from hipq.errors import Invalid
from hipq.job.when import to_datetime


@group(
    "signing",
    "hipq signing list shop:app",
    "hipq signing rotate shop:app",
    "hipq signing drop shop:app 5f3a9c01",
    of=AppCommand,
)
def signing() -> None:
    """List and rotate the keys that sign callback URLs."""


@signing.command("list", "hipq signing list shop:app", "hipq signing list --db sqlite:///shop.db --json")
def list_keys(target: Target) -> None:
    """The keys that live: when each was made, and what it is used for. Never its secret."""
    say_table([row for app in target.apps for row in _rows(app)], "app", "key", "made", "use", none="keys")


@signing.command("rotate", "hipq signing rotate shop:app", "hipq signing rotate shop:app --yes --json")
@yes_option
@audited
def rotate(target: Target) -> None:
    """Add a key. It signs a minute from now, when all processes know it. Two keys may live: what the one before has
    signed stays good, and what the one before that has signed does not."""
    app = _one(target.apps)
    before = app.signer.keys()
    if len(before) >= LIVE:
        confirm(f"This drops the key {before[0].id}: callback URLs that it signed will be refused. Go on?")
    new = app.signer.rotate()
    after = app.signer.keys()
    dropped = [key.id for key in before if key not in after]
    lines = [f"key {new.id} signs a minute from now", *(f"dropped key {key}" for key in dropped)]
    say({"app": app.name, "key": new.id, "dropped": dropped}, "\n".join(lines))


@signing.command(
    "drop", "hipq signing drop shop:app 5f3a9c01", "hipq signing drop --db sqlite:///shop.db 5f3a9c01 --yes"
)
@click.argument("key", metavar="KEY")
@yes_option
@audited
def drop(target: Target, key: str) -> None:
    """Refuse all that KEY has signed: for a secret that became known. Processes that run go by it within half a minute.
    If it was the only one, there is a new one at once."""
    app = next((one for one in target.apps if key in [row["key"] for row in _rows(one)]), None)
    if app is None:
        raise NotFound(f"there is no signing key {key!r:.40} here")
    confirm(f"Drop the key {key}? Callback URLs that it signed will be refused.")
    app.signer.drop(key)
    say({"app": app.name, "dropped": [key]}, f"dropped key {key}")


def _rows(app: Hipq) -> list[dict[str, Any]]:
    keys = app.signer.keys()
    return [
        {"app": app.name, "key": key.id, "made": to_datetime(key.made), "use": use}
        for key, use in zip(keys, _uses(keys, app.store.now()), strict=True)
    ]


def _uses(keys: list[KeyInfo], now: int) -> list[str]:
    old = [key for key in keys if key.made <= now - SIGNS_AFTER]
    signs = old[-1] if old else keys[0]
    return ["signs" if key == signs else "checks" if key in old else "signs soon" for key in keys]


def _one(apps: list[Hipq]) -> Hipq:
    if not apps:
        raise Invalid("nothing is registered in this database")
    if len(apps) > 1:
        there = ", ".join(one.name for one in apps)
        raise Invalid(f"this database has several instances ({there}): say which, by MODULE:APP")
    return apps[0]
