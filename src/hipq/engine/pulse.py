"""How often an engine shows signs of life, and how often it looks for some."""

from __future__ import annotations

from typing import Final

LEASE: Final = 10.0
"""Seconds an engine may be silent before its jobs are taken from it. A third of it: renewals, looks for orphans."""
POLL: Final = 1.0
"""Seconds between looks when nothing wakes the engine: the safety net."""
LINGER: Final = 20_000
"""Microseconds until a look after something happened: catches what was added while its wake-up call was held back, and
learns of jobs that are due before the next poll."""
TIDYING = 5_000_000
"""Microseconds in which a handler that was told to stop, because its time was over, may end by itself."""
BLOCKED_FOR: Final = 5_000_000
"""Microseconds until a save that somebody's transaction stood in the way of is tried again: a try may take a second."""
SHARE: Final = 20
LONGEST_REST: Final = 5_000_000
"""Microseconds: later than this nobody looks, whatever it costs."""


class PollBudget:
    """Looks of one kind. While somebody's old transaction is open, what a look reads grows and grows; not so the part
    of the time that is spent on looks that are not urgent: a twentieth. One that took long is no reason to rest, two
    are: the process may have been stopped meanwhile."""

    def __init__(self) -> None:
        self.ended = 0
        self.rested = 0
        """Until then there is no hurry to look again."""
        self._took = 0

    def looked(self, began: int, ended: int) -> None:
        took = ended - began
        self.ended = ended
        self.rested = ended + min(SHARE * min(took, self._took), LONGEST_REST)
        self._took = took
