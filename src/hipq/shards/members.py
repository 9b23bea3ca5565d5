"""Which databases are the shards of an instance: a note in each of them says so, so that no program can mean others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hipq.errors import Conflict, Invalid, StoreUnavailable
from hipq.limits.slice import WHOLE
from hipq.shards import place
from hipq.shards.shard import Shard
from hipq.stores.notes import note
from hipq.stores.protocols import Store

KIND: Final = "shards"


class Member(msgspec.Struct, frozen=True):
    slot: int
    part: int
    """The part of the limits of each queue with which it begins."""


class Members(msgspec.Struct, frozen=True):
    """The shards of an instance, as the database of one of them knows them."""

    here: str
    """The name of this one."""
    shards: dict[str, Member]


_decoder = msgspec.json.Decoder(Members)


def joined(app: str, shards: Sequence[Shard]) -> None:
    """Give each shard its slot: the one that the databases know or, in new ones, one by its place in the list. A
    database that is away is given its note when somebody opens the instance while that is there."""
    known = {shard.name: _read(app, shard) for shard in shards}
    members = _agreed(app, shards, [found for found in known.values() if found]) or _begun(app, shards)
    for shard in shards:
        shard.slot, shard.part = members[shard.name].slot, members[shard.name].part
        shard.even = WHOLE // len(members)
    for shard in shards:
        found = known[shard.name]
        if not shard.away and (found is None or found.shards != members):
            write(app, shard, members)


def _read(app: str, shard: Shard) -> Members | None:
    """What a shard's database knows; None, if that is nothing, or the database is away."""
    try:
        with shard.asked() as store:
            text = note(store, KIND, app)
    except StoreUnavailable:
        return None
    found = _decoder.decode(text) if text else None
    if found and found.here != shard.name:
        raise Conflict(
            f"the database given as shard {shard.name} of {app} is its shard {found.here}: give the databases in the "
            "order they had, or each under its name"
        )
    return found


def _agreed(app: str, shards: Sequence[Shard], there: Sequence[Members]) -> Mapping[str, Member]:
    """The members that the databases know, checked against the names in use here; none, if no database knows any."""
    members = {name: member for found in there for name, member in found.shards.items()}
    names = {shard.name for shard in shards}
    if members and (unknown := sorted(names - members.keys())):
        raise Invalid(
            f"{', '.join(unknown)} is no shard of {app}: there are {', '.join(sorted(members))}, and no others can be "
            "added once an instance has begun"
        )
    if missing := sorted(members.keys() - names):
        raise Invalid(f"{app} has jobs in its shard {', '.join(missing)}, too: name that database in db=")
    return members


def _begun(app: str, shards: Sequence[Shard]) -> Mapping[str, Member]:
    """The members of an instance that begins: its databases must all be there. One that has queues already keeps all of
    their `limit(n)`, because its jobs may hold that."""
    if away := [shard.away for shard in shards if shard.away]:
        raise StoreUnavailable(f"all shards must be there when an instance begins to use them: {away[0]}")
    for slot, shard in enumerate(shards):  # before anything is written: else a wrong order could not be mended
        with shard.asked() as store:
            _check_free(store, shard.name, slot)
    first, *others = shards
    with first.asked() as store:
        if store.queues():
            members = {first.name: Member(0, WHOLE)} | {one.name: Member(n, 0) for n, one in enumerate(others, 1)}
        else:
            part, rest = divmod(WHOLE, len(shards))
            members = {shard.name: Member(n, part + (rest if n == 0 else 0)) for n, shard in enumerate(shards)}
        # Another program may begin at the same time: the first one says what holds.
        text = msgspec.json.encode(Members(first.name, members)).decode()
        decided = store.change_note(KIND, app, lambda before: before or text)
    return _agreed(app, shards, [_decoder.decode(decided)])


def write(app: str, shard: Shard, members: Mapping[str, Member]) -> None:
    """Let a shard's database know which one it is, and the others."""
    text = msgspec.json.encode(Members(shard.name, dict(members))).decode()
    with shard.asked() as store:
        _check_free(store, shard.name, shard.slot)
        store.number_above(*place.below(shard.slot))
        store.change_note(KIND, app, lambda _before: text)


def _check_free(store: Store, name: str, slot: int) -> None:
    """Raise if the database has numbered queues as if it had another slot."""
    for queue in store.queues():
        if place.slot_of_queue(queue.number) != slot:
            raise Conflict(
                f"shard {name} must have an empty database: this one has the queue {queue.name} of {queue.app}"
            )
