"""Bugs in what serves the lanes of a daemon's tenants."""

from __future__ import annotations

from tests.planted.bug import Bug

BATCH = "engine/batch.py"

LANE_BUGS = (
    Bug(
        "the scheduler does not hear of jobs that were lost",
        "scheduler",
        (
            (
                BATCH,
                "        if self.in_flight.pop(execution.row.id, None):\n            self._left(execution)\n",
                "        self.in_flight.pop(execution.row.id, None)\n",
            ),
        ),
    ),
    Bug(
        "spare slots are never used",
        "I13",
        ((BATCH, "return NO_SPARE if room > 0 else ", "return NO_SPARE if True else "),),
    ),
    Bug(
        "a lane that was served once is not looked for again",
        "I1|I13",
        (
            (
                "engine/lanes.py",
                "self._rounds_left = 1 if self._next_tenant == TOP else 2",
                "self._rounds_left = 0",
            ),
        ),
    ),
)
