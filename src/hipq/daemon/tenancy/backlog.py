"""How much each tenant has waiting: counted in the store, which takes its time, and what was added here since on top.

At most a twentieth of the time goes into counting. So a figure is exact to within what other daemons took in meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from hipq.errors import HipqError
from hipq.journal import Journal

SHARE: Final = 20
"""Times as long as it took, a count is not done again."""
SELDOM: Final = 1.0
"""Seconds between two counts, at least."""
BEHIND: Final = 0.5
"""Seconds that the store may be behind the journal for what waits to be counted."""

Usage = Mapping[str, tuple[int, int]]
"""By tenant, jobs and bytes."""
_log = logging.getLogger("hipq")


class Backlog:
    """Any thread may ask."""

    def __init__(
        self,
        usage: Callable[[], Usage],
        steady: Callable[[], float] = time.monotonic,
        is_taken: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_taken`: whether the store has all that was kept until now; it may wait a moment for that."""
        self._usage = usage
        self._is_taken = is_taken
        self._steady = steady
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._counted: Usage = {}
        self._since: dict[str, tuple[int, int]] = {}
        """What was added here since the count began."""
        self._entering: dict[str, tuple[int, int]] = {}
        """What is on its way into the journal or the store."""
        self._again = -1e9
        self._counts = 0

    @property
    def is_new(self) -> bool:
        """Nothing was counted yet."""
        return self._again < 0

    @property
    def is_due(self) -> bool:
        return self._steady() >= self._again

    def added(self) -> tuple[int, Usage]:
        """What was added here up to now, and which count it comes on top of."""
        with self._lock:
            return self._counts, dict(self._since)

    def count(self, added: tuple[int, Usage] | None = None) -> None:
        """If it is time for that, and the store has what was added before. What comes behind `added`, or all while the
        store has not, is counted on top of it."""
        if not self.is_due:
            return  # whoever counts right now may take seconds
        with self._counting:
            on_top_of, before = added or self.added()
            if not self.is_due or on_top_of != self._counts:
                return
            is_taken = self._is_taken()  # else some of `before` is in the journal only, and no count has it
            began = self._steady()
            try:
                if is_taken:
                    self._begin(self._usage(), before)
            except HipqError as error:  # the store is away: what was counted last must do
                _log.debug("what waits cannot be counted: %s", error)
            now = self._steady()
            self._again = now + max(SELDOM, (now - began) * SHARE)

    def _begin(self, counted: Usage, before: Usage) -> None:
        with self._lock:
            self._counted, self._counts = counted, self._counts + 1
            for tenant, (jobs, size) in before.items():
                now = self._since.pop(tenant)
                if now != (jobs, size):
                    self._since[tenant] = (now[0] - jobs, now[1] - size)

    def enter(self, tenant: str, jobs: int, size: int, most: tuple[int, int] = (0, 0)) -> int:
        """Count these jobs as on their way in, and return -1; unless there are more than `most` then, jobs and bytes
        (0 = any number): which of the two, 0 or 1. What makes nothing more never is too much.

        Each `enter` is followed by `kept` or `leave`. Until then no count in the store can have seen the jobs, so none
        replaces what was entered: a quota may be used up too early, never too late."""
        with self._lock:
            for which, more in enumerate((jobs, size)):
                if most[which] and more > 0 and self._there(tenant, which) + more > most[which]:
                    return which
            entering = self._entering.get(tenant, (0, 0))
            self._entering[tenant] = (entering[0] + jobs, entering[1] + size)
        return -1

    def _there(self, tenant: str, which: int) -> int:
        return sum(one.get(tenant, (0, 0))[which] for one in (self._counted, self._since, self._entering))

    def known(self, tenant: str) -> tuple[int, int]:
        """Jobs and bytes a tenant has, as far as is known."""
        with self._lock:
            return self._there(tenant, 0), self._there(tenant, 1)

    def size(self, tenant: str) -> int:
        """Bytes a tenant has, as far as is known."""
        return self.known(tenant)[1]

    def kept(self, tenant: str, jobs: int, size: int) -> None:
        """These jobs, which entered, are in the journal or in the store: the next count finds them."""
        with self._lock:
            if self._left(tenant, jobs, size):
                since = self._since.get(tenant, (0, 0))
                self._since[tenant] = (since[0] + jobs, since[1] + size)

    def leave(self, tenant: str, jobs: int, size: int) -> None:
        """These jobs, which entered, were not added after all."""
        with self._lock:
            self._left(tenant, jobs, size)

    def _left(self, tenant: str, jobs: int, size: int) -> bool:
        """Whether they had entered: a tenant may have got its quota only afterwards. Others may have entered since, and
        what these count is not to become less than nothing."""
        entering = self._entering.pop(tenant, None)
        if entering is None:
            return False
        left = (max(entering[0] - jobs, 0), max(entering[1] - size, 0))
        if left != (0, 0):
            self._entering[tenant] = left
        return True


def is_taken(journal: Journal) -> bool:
    """Whether the store has all that the journal has now: it is some milliseconds behind, unless it is stuck."""
    last = journal.last
    return soon(lambda: journal.is_taken(last))


def soon(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + BEHIND
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
