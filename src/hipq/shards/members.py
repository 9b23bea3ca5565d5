"""Which databases are the shards of an instance: a note in each of them says so, so that no program can mean others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from hipq.errors import Conflict, Invalid, StoreUnavailable
from hipq.shards import place
from hipq.shards.shard import Shard
from hipq.stores.notes import note
from hipq.stores.protocols import Store

KIND: Final = "shards"


class Members(msgspec.Struct, frozen=True):
    """The shards of an instance, as the database of each knows them."""

    here: str
    """The name of the shard whose database has this note."""
    slots: dict[str, int]
    """The slots of all shards, by name."""


_decoder = msgspec.json.Decoder(Members)


def joined(app: str, shards: Sequence[Shard]) -> None:
    """Give each shard its slot: the one that the databases know or, in new databases, one by its place in the list.
    Databases that are away now are looked at when they are back, and this is called again."""
    known = {shard.name: read(app, shard) for shard in shards}
    there = [found for found in known.values() if found is not None]
    slots = agreed(app, shards, there)
    if not slots:
        slots = _begun(shards)
    for shard in shards:
        shard.slot = slots[shard.name]
    for shard in shards:
        found = known[shard.name]
        if shard.is_asked and (found is None or found.slots != slots):
            write(app, shard, slots)


def read(app: str, shard: Shard) -> Members | None:
    """What a shard's database knows; None, if that is nothing, or the database is away."""
    try:
        with shard.asked() as store:
            return of(store, app)
    except StoreUnavailable:
        return None


def of(store: Store, app: str) -> Members | None:
    text = note(store, KIND, app)
    return _decoder.decode(text) if text else None


def agreed(app: str, shards: Sequence[Shard], there: Collection[Members]) -> dict[str, int]:
    """The slots that the databases agree on, checked against the names in use here; {} if none knows any."""
    slots = {name: slot for found in there for name, slot in found.slots.items()}
    if not slots:
        return slots
    names = {shard.name for shard in shards}
    if unknown := sorted(names - slots.keys()):
        raise Invalid(
            f"{', '.join(unknown)} is no shard of {app} yet: there are {', '.join(sorted(slots))}. "
            "A shard is added with `hipq shards add`"
        )
    if missing := sorted(slots.keys() - names):
        raise Invalid(f"{app} has jobs in the shard {', '.join(missing)}, too: name its database in db=")
    return slots


def _begun(shards: Sequence[Shard]) -> dict[str, int]:
    """The slots of an instance that begins: only if all its databases are there."""
    for shard in shards:
        if not shard.is_asked:
            raise StoreUnavailable(f"all shards must be there when an instance is begun: {shard.away}")
    return {shard.name: slot for slot, shard in enumerate(shards)}


def write(app: str, shard: Shard, slots: dict[str, int]) -> None:
    """Let a shard's database know its slot and the others'."""

    def written(text: str) -> str:
        found = _decoder.decode(text) if text else None
        if found and found.here != shard.name:
            raise Conflict(
                f"the database given as shard {shard.name} of {app} is its shard {found.here}: give the databases in "
                "the order they had, or each under its name"
            )
        return msgspec.json.encode(Members(shard.name, slots)).decode()

    with shard.asked() as store:
        check_free(store, shard)
        store.number_above(*place.below(shard.slot))
        store.change_note(KIND, app, written)


def check_free(store: Store, shard: Shard) -> None:
    """Raise if the database has numbered queues as if it had another slot."""
    wrong = [queue for queue in store.queues() if place.slot_of_queue(queue.number) != shard.slot]
    if wrong:
        raise Conflict(
            f"shard {shard.name} must have an empty database: this one has the queue {wrong[0].name} of {wrong[0].app}"
        )
