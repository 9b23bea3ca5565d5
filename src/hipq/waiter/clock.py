"""The time at AWS.

Every answer of AWS carries its time. A machine with a wrong clock would release messages early or late and take items
that others have claimed, so the machine's clock is corrected by what AWS says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from hipq.job.when import SECOND


class AwsClock:
    """The machine's clock, corrected by AWS. `read` replaces it with a clock that tests turn by hand and nothing
    corrects."""

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._read = read or time.time
        self._corrected = read is None
        self._asked = threading.local()
        self.offset = 0.0
        """Seconds to add to this machine's clock."""

    def now(self) -> int:
        """The time at AWS, in microseconds since 1970."""
        return int((self._read() + self.offset) * SECOND)

    def call_began(self) -> None:
        """Note that a call begins in this thread."""
        self._asked.at = self._read()

    def answer_received(self, date: str | None) -> None:
        """Correct the clock by the Date header of an answer. AWS gives whole seconds, and the answer spent some time
        on the way: a clock that may be right is left alone, and a wrong one is moved no further than necessary."""
        if not self._corrected or not date:
            return
        try:
            earliest = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return  # the answer came from something between AWS and this machine
        here = self._read()
        latest = earliest + 1 + max(here - getattr(self._asked, "at", here), 0.0)
        self.offset = min(max(here, earliest), latest) - here
