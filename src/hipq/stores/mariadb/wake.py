"""Waking engines in other processes: there is no NOTIFY, so who has something to tell writes a row, and engines that
sleep look for new ones, as often as that costs them next to nothing.

Rows are an accelerator. One that is not seen, since its transaction took long, costs a wait until the engine looks
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from secrets import randbits
from typing import Final

from hipq.errors import StoreError
from hipq.stores.claim_groups import TOP, RankPosition
from hipq.stores.sql.notices import Notices
from hipq.stores.waker import NO_NEWS, NOTIFIED, News, Waker

LEAST_SECONDS: Final = 0.025
"""Between two looks; and"""
MOST_SECONDS: Final = 0.25
"""if looks are dear: they take"""
SHARE: Final = 250
"""one part of so many of a processor."""
OVERLAP_SECONDS: Final = 1.0
"""Rows are numbered before they are committed: those below the highest that was seen are looked for so long."""
KEPT: Final = 10_000
"""Rows that stay in the table, about."""
PRUNED: Final = 500
"""Rows told between two prunes of one process."""

Told = tuple[int, int, str, int]
"""Its number, the queue, and the place there."""


class Teller:
    """What this process tells. `writer` is known to nobody else."""

    def __init__(self) -> None:
        self.writer = randbits(62)
        self.notices = Notices()
        self.told = 0

    def wanted(self, places: Mapping[int, RankPosition]) -> dict[int, RankPosition]:
        return {queue: place for queue, place in places.items() if self.notices.wanted(queue, place)}

    def unsent(self, places: Mapping[int, RankPosition]) -> None:
        for queue in places:
            self.notices.unsent(queue)


class PollingWaker(Waker):
    """`look`: rows above a number, without those of this process."""

    def __init__(self, look: Callable[[int], list[Told]], newest: Callable[[], int]) -> None:
        super().__init__()
        self._look, self._newest = look, newest
        self._floor = -1
        """Rows up to here need not be looked for any more; -1 = nothing was looked for yet."""
        self._seen: dict[int, float] = {}
        """When each row above that was seen."""
        self._pause = LEAST_SECONDS

    def wait(self, seconds: float) -> News:
        until = time.monotonic() + seconds
        if self._floor < 0:
            return self._begin(until)
        news = self._heard()
        while not news:
            began = time.monotonic()
            pause = min(self._pause, until - began)
            notified, _ = self.sleep(pause)
            if notified:
                return {**self._heard(), **NOTIFIED}
            if time.monotonic() < began + pause - 0.001:
                return NO_NEWS  # a handler has ended
            if time.monotonic() >= until:
                return self._heard() if pause > 0 else NO_NEWS
            news = self._heard()
        return news

    def _begin(self, until: float) -> News:
        """What was told before this moment is not known: look at everything."""
        try:
            self._floor = self._newest()
        except StoreError:
            return NOTIFIED if self.sleep(min(MOST_SECONDS, until - time.monotonic()))[0] else NO_NEWS
        self._seen = {}
        return NOTIFIED

    def _heard(self) -> News:
        began, used = time.monotonic(), time.thread_time()
        try:
            rows = self._look(self._floor)
        except StoreError:
            self._floor = -1  # what is told meanwhile is not heard
            return NO_NEWS
        spent = time.thread_time() - used
        self._pause = min(max(spent * SHARE, LEAST_SECONDS), MOST_SECONDS)
        news: dict[int, RankPosition] = {}
        for number, queue, rank, job in rows:
            if number not in self._seen:
                self._seen[number] = began
                if news.get(queue) != TOP:
                    news[queue] = (rank, job)
        if old := [number for number, at in self._seen.items() if at < began - OVERLAP_SECONDS]:
            self._floor = max(self._floor, *old)
            self._seen = {number: at for number, at in self._seen.items() if number > self._floor}
        return news

    @property
    def hears_queues(self) -> bool:
        return True
