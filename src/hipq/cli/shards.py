"""`hipq shards`: the databases of an instance that has several, and what each may use of limits."""

from __future__ import annotations

from typing import Any

from hipq.cli.commands import command
from hipq.cli.show import say_table
from hipq.cli.target import AppCommand, Target
from hipq.errors import Invalid, StoreUnavailable
from hipq.job.units import number
from hipq.limits.slice import WHOLE
from hipq.queue import Queue
from hipq.shards.database import ShardedDatabase
from hipq.shards.shard import Shard
from hipq.stores.password import without_password


@command("shards", "hipq shards shop:app", "hipq shards shop:app --json", cls=AppCommand)
def shards(target: Target) -> int:
    """List the shards of an application: where each is, whether it is there, how many jobs it has to run and, of each
    queue's limit, its part and what its jobs hold.

    Exit 0: all are there. 1: one is away.
    """
    if not target.app:
        raise Invalid("name the application: its code says which databases are its shards")
    database = target.program.database
    if not isinstance(database, ShardedDatabase):
        raise Invalid(f"{target.program.name} has one database: shards are several, given as db=[...]")
    rows = [row for shard in database.router.shards for row in _of(shard, target.program.queues)]
    say_table(rows, "shard", "slot", "database", "queue", "ready", "limit", "held", "state", none="shards")
    return int(any(row["state"] != "there" for row in rows))


def _of(shard: Shard, queues: list[Queue]) -> list[dict[str, Any]]:
    """A shard's rows: one for each queue."""
    where = {"shard": shard.name, "slot": shard.slot, "database": without_password(shard.url)}
    try:
        with shard.asked() as store:
            store.queues()  # there may be none
        return [where | _queue(shard, queue) for queue in queues] or [where | {"queue": "", "state": "there"}]
    except StoreUnavailable as error:
        return [where | {"queue": "", "ready": None, "limit": None, "held": None, "state": str(error)}]


def _queue(shard: Shard, queue: Queue) -> dict[str, Any]:
    own = shard.number(queue.app.name, queue.name, queue.app.declared.table(queue.name))
    with shard.asked() as store:
        limits, now = store.limits(own), store.now()
        ready = store.counts(own, 10_000, now, now).ready
    part = limits.rules.slice
    whole = limits.rules.most if limits.rules.whole and limits.rules.most else None
    return {
        "queue": queue.name, "ready": ready, "limit": whole, "part": part.part / WHOLE if part else 1.0,
        "held": number(sum(limits.held.values())), "state": "there",
    }  # fmt: skip
