"""What time it is at AWS.

Every answer of AWS says when it was made. A machine whose clock is wrong would release messages early or late, and take
what others have claimed, so its clock is corrected by what AWS says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from hipq.job.when import SECOND


class AwsClock:
    """`read` instead: a clock to turn by hand, that nobody corrects."""

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._read = read or time.time
        self._corrected = read is None
        self._asked = threading.local()
        self.offset = 0.0
        """Seconds to add to this machine's clock."""

    def now(self) -> int:
        """Microseconds since 1970."""
        return int((self._read() + self.offset) * SECOND)

    def asked(self) -> None:
        """A call begins, in this thread."""
        self._asked.at = self._read()

    def heard(self, date: str | None) -> None:
        """The Date of its answer. AWS says whole seconds, and the answer was on its way for a while: a clock that may
        be right is left alone, and another is moved no further than it must."""
        if not self._corrected or not date:
            return
        try:
            earliest = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return  # not from AWS, but from something between it and us
        here = self._read()
        latest = earliest + 1 + max(here - getattr(self._asked, "at", here), 0.0)
        self.offset = min(max(here, earliest), latest) - here
