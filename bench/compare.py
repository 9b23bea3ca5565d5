"""hipq, plain SQL and the peers side by side, verb by verb: what the report's tables and its picture are made from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bench.lines import PLAIN_SQL
from bench.peers import DURABLE, POSTGRES, REDIS, SQLITE
from bench.results import Results

VERBS = ("enqueue", "enqueue_many", "drain", "latency")
STORES = (SQLITE, POSTGRES, REDIS)
RUN_ON = {SQLITE: SQLITE, POSTGRES: POSTGRES, REDIS: POSTGRES}
"""On which store hipq ran in the rounds of these peers."""
HIPQ = "hipq"


class Contender(NamedTuple):
    name: str
    store: str
    figures: dict[str, float]
    """By verb; one that is missing could not be measured, or does not exist."""
    durable: bool = True
    """What it acknowledges survives a crash and a power loss."""


def contenders(results: Results, store: str) -> Iterator[Contender]:
    """hipq first, then plain SQL of the same store, then the peers."""
    where = RUN_ON[store]
    ours, others = _figures(results, where)
    if ours:
        yield Contender(HIPQ if where == store else f"{HIPQ} ({where})", where, ours)
    if where == store and PLAIN_SQL in others:
        yield Contender(PLAIN_SQL, store, others[PLAIN_SQL])
    for peer in results.peers:
        label = peer.name if where == store else f"{peer.name} ({store})"
        if peer.store == store and label in others:
            yield Contender(peer.name, store, others[label], peer.durability == DURABLE)


def _figures(results: Results, store: str) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    ours: dict[str, float] = {}
    others: dict[str, dict[str, float]] = {}
    for where, line in results.lines:
        if where == store and line.verb in VERBS:
            ours[line.verb] = line.hipq
            others.setdefault(line.against, {})[line.verb] = line.raw
    return ours, others
