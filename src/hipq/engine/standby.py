"""Who looks when another process has added a job: one of the engines that serve the same, and a few more soon after.

All these engines hear of each job. If all of them looked, a job would cost as many claims as there are engines, and one
of them would find it. So the engines have an order, by the numbers of their leases, which begins at another engine for
each job. The first looks at once, some look a little later in case the first is busy or gone, and the others leave the
job to these.

Nobody knows who is busy. So an engine that comes late and still finds the job assumes fewer other engines from then on,
until it looks in vain.

For the same reason engines share the polls while all of them are idle. Nothing but how soon a job starts depends on
this: every engine looks once in a while, whatever it has heard.
"""

from __future__ import annotations

from typing import Final

from hipq.job.model import QUEUE_BITS
from hipq.stores.values import Crew

LATER: Final = (0, 5_000, 20_000)
"""Microseconds after which the first engines in the order look. All others leave a job to them."""
POLLS: Final = 6
"""Looks per poll interval, of all engines together while they are idle."""


class Standby:
    def __init__(self) -> None:
        self._crew = Crew(1, 0)
        self._needed = 0
        """How often to halve the assumed number of engines."""
        self.late = False
        """Whether the next look is only in case nobody has looked before."""

    @property
    def share(self) -> float:
        """Poll intervals between two looks of one engine while all are idle."""
        return max(self._crew.size / POLLS, 1.0)

    def renewed(self, crew: Crew) -> None:
        self._crew = crew
        self.in_vain()

    def turn(self, job: int) -> int | None:
        """Microseconds after which to look for the job with this id; None = it is left to others."""
        engines = max(self._crew.size >> self._needed, 1)
        turn = (self._crew.place + (job >> QUEUE_BITS)) % engines
        self.late = turn > 0
        return LATER[turn] if turn < len(LATER) else None

    def looked(self, found: bool) -> None:
        """This engine has looked. `found`: it found work to claim that it did not know of."""
        if self.late and found and self._crew.size >> self._needed > 1:
            self._needed += 1
        self.late = True

    def in_vain(self) -> None:
        """This engine claimed in vain, because another was faster, or it has not heard of new jobs for a while."""
        self._needed = max(self._needed - 1, 0)
