"""The part of a queue's limits that one shard has. The parts of all shards are never more than the whole together.

Parts move from shard to shard in two writes: first the giver notes what it has sent, and has so much less; then the
taker notes what it has got, and has so much more. What is on its way counts nowhere, and anybody may take the second
step, once or again: so a crash in between loses nothing and doubles nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from hipq.job.units import Number, counted, number

WHOLE: Final = 10**15
"""All parts of a limit together."""
_SLACK: Final = WHOLE // 4096
"""What a part may lack of a thousandth of a unit and still count as one: a seventh of a limit of 7 has no exact part.
The slack of a thousand shards is less than a thousandth, so what they may use is not more than the limit."""


class Slice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one shard has of its queue's limits."""

    part: int
    """Its part of `limit(n)`, which shards lend each other."""
    even: int = WHOLE
    """Its part of all other limits, which stays as it is."""
    sent: Mapping[str, int] = {}
    """All that was ever sent to each other shard, by its slot."""
    got: Mapping[str, int] = {}
    """All that ever arrived from each other shard."""

    def giving(self, part: int, to: str) -> Slice:
        assert 0 < part <= self.part
        return replace(self, part=self.part - part, sent={**self.sent, to: self.sent.get(to, 0) + part})

    def taking(self, part: int, giver: str) -> Slice:
        return replace(self, part=self.part + part, got={**self.got, giver: self.got.get(giver, 0) + part})

    def of(self, n: Number) -> Number:
        """This shard's part of `limit(n)`."""
        return number(self.thousandths(counted(n)))

    def thousandths(self, whole: int) -> int:
        return (whole * self.part + _SLACK) // WHOLE

    def evenly(self, n: Number) -> Number:
        """This shard's part of another limit."""
        return number((counted(n) * self.even + _SLACK) // WHOLE)

    def of_share(self, percent: Number) -> Number:
        """The percentage of this shard's part of `limit(n)` that is as much as its even part of the share."""
        return number(counted(percent) * self.even // self.part) if self.part else percent
