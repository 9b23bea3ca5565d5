"""The engine's time: its two clocks, all timers that are not those of one queue, and how often it looks. Timers are
moments on the steady clock; 0 = at the next turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hipq.job.event_names import EngineEvent

if TYPE_CHECKING:
    from hipq.engine.setup import Setup

LEASE: Final = 10.0
"""Seconds an engine may be silent before its jobs are taken from it. A third of that passes between two renewals, which
also look for orphans."""
POLL: Final = 1.0
"""Seconds between two polls: the looks when nothing wakes the engine, as a safety net."""
LINGER: Final = 20_000
"""Microseconds until a look after something happened: catches what was added while its wake-up call was held back, and
learns of jobs that are due before the next poll."""
TIDYING = 5_000_000
"""Microseconds that a handler has to end by itself once it was told to stop."""
BLOCKED_FOR: Final = 5_000_000
"""Microseconds until a save that was blocked by somebody's transaction is tried again: each try may take a second."""
SHARE: Final = 20
LONGEST_REST: Final = 5_000_000
"""Microseconds after which the engine looks again at the latest, whatever a look costs."""

REPORT_EVERY: Final = 1_000_000
"""Microseconds between two looks at what handlers report of their progress, and so between two writes of it."""

NOTABLE: Final = 5_000_000
"""Microseconds by which a calendar must be set back to be worth an event."""


class PollBudget:
    """Keeps looks of one kind to a twentieth of the time, unless they are urgent: while somebody's old transaction is
    open, each look reads more. One look that took long is no reason to rest, for the process may have been stopped
    meanwhile; two are."""

    def __init__(self) -> None:
        self.ended = 0
        self.rested = 0
        """Until when there is no hurry to look again."""
        self._took = 0

    def looked(self, began: int, ended: int) -> None:
        took = ended - began
        self.ended = ended
        self.rested = ended + min(SHARE * min(took, self._took), LONGEST_REST)
        self._took = took


class Timetable:
    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.now = 0
        """The store's time at the last turn."""
        self._ahead = -(1 << 63)
        """By how much the calendar was ahead of the steady clock at the last turn."""
        self.sweep = 0
        """When to renew the lease and look for orphans."""
        self.prune = 0
        """When to delete old answers and fold old counters."""
        self.deliver = 0
        """When to match answers that other programs wrote in plain SQL, if there are some."""
        self.blocked = 0
        """When to try again to save what somebody's transaction blocks."""
        self.reschedule = 0
        """When to reschedule jobs whose window closed."""
        self.overrun = 0
        """When to look for handlers that run too long, and jobs that wait too long for a free hand."""
        self.report = 0
        """When to store what handlers report of their progress."""
        self.peek = 0
        """When to peek at what there is to do."""
        self.peeks = PollBudget()
        self.awaited = False
        """Whether somebody waits until nothing is left to do: then no peek is put off."""

    def read_clocks(self) -> tuple[int, int]:
        """The calendar and the steady clock, for one turn. A calendar that was set back is worth an event: jobs and
        schedules wait until the calendar has caught up."""
        self.now, steady = self._setup.store.now(), self._setup.steady()
        back = self._ahead - (self.now - steady)
        if back > NOTABLE:
            self._setup.events.emit(EngineEvent.CLOCK_SET_BACK, self.now, seconds=round(back / 1e6))
        self._ahead = self.now - steady
        return self.now, steady

    def after_poll(self, steady: int) -> int:
        return steady + round(self._setup.poll * 1e6)

    def peek_by(self, steady: int) -> None:
        self.peek = min(self.peek, steady)

    def peek_soon(self, steady: int) -> None:
        """Peek by this moment, or later if peeks have become expensive."""
        self.peek_by(steady if self.awaited else max(steady, self.peeks.rested))

    def peeked(self, began: int, share: float) -> None:
        """A peek began at this moment: set the next. `share`: poll intervals until then, where several engines share
        the polls."""
        self.peek = began + round(self._setup.poll * share * 1e6)
        if not self.awaited:
            self.peek = max(self.peek, self.peeks.rested)

    def next(self, *, blocked: bool, rescheduling: bool, executing: bool, delivering: bool) -> int:
        """When the first timer is due. Some timers count only while there is something for them to do."""
        times = [self.sweep, self.prune, self.peek]
        times += [self.deliver] if delivering else []
        times += [self.blocked] if blocked else []
        times += [self.reschedule] if rescheduling else []
        times += [self.overrun] if executing else []
        return min(times)
