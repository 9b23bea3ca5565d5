"""Which shards of a Kinesis stream one source reads, and how far, as kept in `Checkpoints`.

Each source of a group holds its share of the shards. A note that changes every few seconds shows that a source is
alive, and a source with more than its share gives some up. A shard that resulted from a split or a merge is read after
its parents were read to their end, so the records of one key stay in order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final
from uuid import uuid4

from hipq.transports.base import Checkpoints

LOOK_SECONDS: Final = 2.0
"""How often a source looks at the shards and the other sources, and renews its claims."""
GONE_SECONDS: Final = 10.0
"""Seconds after which a source without a new note does not count."""
BUSY_PAUSE: Final = 0.2
QUIET_PAUSE: Final = 0.25
"""Seconds between two reads of a shard: Kinesis allows five a second, for all readers together."""
END: Final = "END"
"""The position of a shard that was read to its end."""
START: Final = "start"
"""The part that keeps when the group began, for a group that skips older records."""
READER: Final = "reader-"


class Shard:
    """A shard that this source reads."""

    def __init__(self, shard_id: str, position: str) -> None:
        self.id = shard_id
        self.kept = self.read = position
        """How far the shard is acknowledged, and how far it was read: a sequence number, "@" and a time, or ""."""
        self.iterator = ""
        self.due = self.renewed = 0.0
        """When the shard may be read again, and when its claim was renewed."""
        self.behind: int | None = None
        self.last: int | None = None
        """The sequence number at which the shard was closed; None while it is open."""
        self.is_ended = False

    def advance(self, answer: Mapping[str, Any], now: float) -> None:
        """Take over the result of a read."""
        records = answer.get("Records", ())
        if records:
            self.read = records[-1]["SequenceNumber"]
        self.iterator = answer.get("NextShardIterator") or ""
        self.behind = answer.get("MillisBehindLatest")
        self.due = now + (BUSY_PAUSE if records or self.behind else QUIET_PAUSE)
        number = int(self.read) if self.read.isdigit() else 0
        self.is_ended = not self.iterator or (self.last is not None and not records and number >= self.last)

    def where(self) -> dict[str, Any]:
        """The position to read on from, as Kinesis's arguments."""
        if self.read.startswith("@"):
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": datetime.fromtimestamp(float(self.read[1:]), UTC)}
        if self.read:
            return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": self.read}
        return {"ShardIteratorType": "TRIM_HORIZON"}


class ShardShares:
    def __init__(self, checkpoints: Checkpoints, *, from_now: bool) -> None:
        """`from_now`: records from before the group began are skipped."""
        self._checkpoints = checkpoints
        self._from_now = from_now
        self._members = GroupMembers(checkpoints)
        self.mine: dict[str, Shard] = {}
        self.look_at = 0.0
        """When to look at the shards again."""

    def look(self, listed: Mapping[str, Any], clock: float) -> None:
        """Renew this source's shards, and claim or release some until they are its share. `listed`: the stream's
        shards by their ids; `clock`: the server's time."""
        positions = self._checkpoints.read()
        self.look_at = time.monotonic() + LOOK_SECONDS
        for shard in list(self.mine.values()):
            if shard.id not in listed:  # all records of the shard have expired
                self._give_up(shard)
                continue
            shard.last = _last(listed[shard.id])
            if time.monotonic() - shard.renewed >= LOOK_SECONDS / 2:
                self.keep(shard)
        unread = (shard_id for shard_id in listed if positions.get(shard_id) != END)
        ready = [shard_id for shard_id in unread if _is_next(listed[shard_id], listed, positions)]
        share = self._members.share(positions, len(ready))
        for shard in list(self.mine.values())[share:]:
            if shard.kept == shard.read:
                self._give_up(shard)
        for shard_id in ready:
            if len(self.mine) < share and shard_id not in self.mine:
                self._take(shard_id, _last(listed[shard_id]), positions, clock)

    def keep(self, shard: Shard) -> None:
        """Save how far the shard was acknowledged, and renew its claim. A shard that was read to its end and fully
        acknowledged is released."""
        is_done = shard.is_ended and shard.kept == shard.read
        if not self._checkpoints.keep(shard.id, END if is_done else shard.kept):
            self.mine.pop(shard.id, None)  # another source has it: what is read twice is a duplicate
        elif is_done:
            self._give_up(shard)
            self.look_at = 0.0  # the shards that resulted from it may be read now
        else:
            shard.renewed = time.monotonic()

    def leave(self) -> None:
        """Release all shards to the other sources."""
        with suppress(Exception):  # on an error the claims run out by themselves
            for shard_id in self.mine:
                self._checkpoints.leave(shard_id)
            self._members.leave()
        self.mine.clear()

    def _take(self, shard_id: str, last: int | None, positions: Mapping[str, str], clock: float) -> None:
        position = self._checkpoints.take(shard_id)
        if position is None:
            return
        if position == END:  # read to its end since the look
            self._checkpoints.leave(shard_id)
            return
        shard = self.mine[shard_id] = Shard(shard_id, position or self._beginning(positions, clock))
        shard.last = last
        self.keep(shard)

    def _give_up(self, shard: Shard) -> None:
        self._checkpoints.leave(shard.id)
        self.mine.pop(shard.id, None)

    def _beginning(self, positions: Mapping[str, str], clock: float) -> str:
        """The position where an unread shard begins. With `from_now` that is when the group began and not now:
        otherwise records would be skipped that arrive while nobody listens, or in a new shard."""
        if not self._from_now:
            return ""
        if known := positions.get(START):
            return known
        noted = self._checkpoints.take(START)
        if noted == "":
            self._checkpoints.keep(START, f"@{clock}")
        if noted is not None:
            self._checkpoints.leave(START)
        return noted or f"@{clock}"


class GroupMembers:
    """The living sources of the group. Each holds a part `reader-N` and writes something new into it at each look; a
    source whose note changes is alive, by the clock of whoever sees the change."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._me = ""
        self._seen: dict[str, tuple[str, float]] = {}
        self._is_first = True

    def share(self, positions: Mapping[str, str], shards: int) -> int:
        """How many shards are this source's: the same number for each source, and one more for the first ones if
        some are left over."""
        now = time.monotonic()
        if not self._me or not self._checkpoints.keep(self._me, uuid4().hex):
            self._me = self._register()
        for part, value in positions.items():
            if part.startswith(READER) and self._seen.get(part, ("", 0.0))[0] != value:
                self._seen[part] = (value, -GONE_SECONDS if self._is_first else now)
        self._is_first = False
        alive = {part for part, (value, when) in self._seen.items() if value and now - when < GONE_SECONDS}
        readers = sorted(alive | {self._me})
        return shards // len(readers) + (readers.index(self._me) < shards % len(readers))

    def leave(self) -> None:
        if self._me and self._checkpoints.keep(self._me, ""):
            self._checkpoints.leave(self._me)

    def _register(self) -> str:
        part = next(part for number in count(1) if self._checkpoints.take(part := f"{READER}{number}") is not None)
        self._checkpoints.keep(part, uuid4().hex)
        return part


def _is_next(shard: Mapping[str, Any], listed: Mapping[str, Any], positions: Mapping[str, str]) -> bool:
    """Whether the shard's parents were read to their end."""
    before = (shard.get("ParentShardId", ""), shard.get("AdjacentParentShardId", ""))
    return all(positions.get(parent) == END for parent in before if parent in listed)


def _last(shard: Mapping[str, Any]) -> int | None:
    """The sequence number at which the shard was closed; None while it is open."""
    ending = shard.get("SequenceNumberRange", {}).get("EndingSequenceNumber")
    return int(ending) if ending else None
