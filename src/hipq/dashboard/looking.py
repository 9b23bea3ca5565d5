"""Jobs by filter, looked for in steps. What no index has in the order of ids is looked for along those that one has,
a few thousand at a time and not for long: a page of ten million jobs without a match says how far it has looked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import cycle, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.job.model import Brief, Row, numbered, queue_of, sequence_of
from hipq.stores.filters import Filter

if TYPE_CHECKING:
    from hipq.stores.protocols import Store

WINDOW: Final = 2_500
"""Jobs of each table that are looked at in one step."""
FEW: Final = 5_000
"""Jobs that are all looked at to be sorted, if an index has them in another order;"""
FEW_IDS: Final = 10_000
"""and if nothing of them but their ids is looked at."""
SECONDS: Final = 0.05
"""Time to look for a page, but for its first step."""
QUEUES: Final = 20
"""Queues that are looked at together, whatever time that takes: each takes some milliseconds."""
_SOME: Final = 100
"""Jobs with their payloads that are read at once."""
_LAST: Final = (1 << 47) - 1
_SLACK: Final = 1_000
"""Jobs around a moment that may have ids of another order than their times: clocks differ, and ids are reserved."""
_NEAR: Final = _SLACK // 5


class Search(NamedTuple):
    """What is looked for in one queue."""

    wanted: Filter
    is_meant: Callable[[Row], bool] | None = None
    """What the filter cannot say: it looks at the payload."""
    begin: int = 0
    """Where it begins, as `after` of a filter has it."""
    end: int = 0
    """The last id that it looks at."""
    few: bool = False
    """There are few, by an index of another order."""

    @property
    def exhausted(self) -> int:
        """Where nothing follows."""
        return numbered(0 if self.wanted.newest else _LAST, self.wanted.queue)

    def ends_at(self, place: int) -> bool:
        return place in (0, self.end, self.exhausted)


class Look(NamedTuple):
    rows: list[Brief]
    after: int = 0
    """Where to go on; 0 = nothing follows."""
    looked: int = 0
    """Jobs it has looked at, if it stopped for the time that took."""

    def and_on(self, store: Store, search: Search, limit: int) -> Look:
        """With what one more step finds."""
        more = look(store, search, self.after, limit - len(self.rows), 0.0)
        return Look([*self.rows, *more.rows], more.after, self.looked + more.looked if more.looked else 0)


class Page(NamedTuple):
    rows: list[Brief]
    after: Mapping[int, int]
    """Where the next page begins in each queue. Empty: there is no next page."""
    looked: int
    """Jobs that were looked at, if looking has stopped before the page was full."""


class Counted(NamedTuple):
    jobs: int
    is_all: bool


def planned(store: Store, search: Search) -> Search:
    """The search as it is best done: see `few`; and between the ids of jobs that were added at the times in it."""
    wanted, queue = search.wanted, search.wanted.queue
    search = search._replace(few=not wanted.is_walked and _are_few(store, wanted))
    if search.end or not (wanted.since or wanted.before is not None):
        return search
    ends = [one for newest in (False, True) for one in store.find(Filter(queue, newest=newest, limit=1), brief=True)]
    low = _sequence_at(store, queue, ends, wanted.since) - _SLACK if wanted.since else 0
    high = _LAST if wanted.before is None else _sequence_at(store, queue, ends, wanted.before) + _SLACK
    places = numbered(max(low, 0), queue), numbered(min(high, _LAST), queue)
    begin, end = reversed(places) if wanted.newest else places
    return search._replace(begin=begin, end=end)


def _sequence_at(store: Store, queue: int, ends: Sequence[Brief], moment: int) -> int:
    """Near the job that was added first at this moment or later: ids grow with time. `ends`: the first and the last."""
    if len(ends) < 2:
        return 0
    oldest, newest = ends
    low, high = sequence_of(oldest.id), sequence_of(newest.id)
    begin, end = oldest.create_time, newest.create_time
    if moment <= begin or moment > end:
        return low if moment <= begin else high
    for way in cycle((-_NEAR, _NEAR, 0)):  # around where it is if jobs came evenly; else by halves
        if high - low <= _SLACK // 2:
            break
        even = low + int((high - low) * (moment - begin) / (end - begin)) + way
        middle = min(max(even, low + 1), high - 1) if way else (low + high) // 2
        after = store.find(Filter(queue, after=numbered(middle, queue), limit=1), brief=True)
        if after and after[0].create_time < moment:
            low, begin = sequence_of(after[0].id), after[0].create_time
        else:
            high, end = middle, after[0].create_time if after else end
    return high


def look(store: Store, search: Search, after: int, limit: int, stop: float, *, whole: bool = False) -> Look:
    """Up to so many jobs from there on; not much longer than to this moment of the monotonic clock."""
    found, looked, read = list[Brief](), 0, 0
    for window in _windows(store, search, after):
        place = window.after
        while True:
            rows = _read(store, search, window._replace(after=place, limit=limit), whole)
            found += rows.meant
            read += rows.read
            if len(found) >= limit:
                return Look(found[:limit], found[limit - 1].id)
            if rows.read < limit:
                break
            place = rows.last
            if time.monotonic() > stop:
                return Look(found, place, max(looked, read))
        looked += WINDOW
        if time.monotonic() > stop and not search.ends_at(window.until):
            return Look(found, window.until, looked)
    return Look(found)


class _Read(NamedTuple):
    meant: Sequence[Brief]
    read: int
    last: int


def _read(store: Store, search: Search, wanted: Filter, whole: bool) -> _Read:
    rows: Sequence[Brief]
    if search.is_meant is None and not whole:
        rows = meant = store.find(wanted, brief=True)
    else:
        rows = found = store.find(wanted)
        meant = [row for row in found if search.is_meant is None or search.is_meant(row)]
    return _Read(meant, len(rows), rows[-1].id if rows else 0)


def _windows(store: Store, search: Search, after: int) -> Iterator[Filter]:
    """The steps in which jobs are looked at: all at once, if no more are read than are found, or there are few."""
    wanted = search.wanted._replace(after=after or search.begin)
    if wanted.is_walked or search.few:
        yield wanted._replace(until=search.end, few=search.few)
        return
    end = search.end or search.exhausted
    farther = max if wanted.newest else min
    until = 0
    while until != end:
        until = farther(store.reach(wanted, WINDOW) or end, end)
        yield wanted._replace(until=until)
        wanted = wanted._replace(after=until)


def _are_few(store: Store, wanted: Filter) -> bool:
    """Whether an index of another order has few of them."""
    if wanted.tenant or wanted.parent or not (wanted.phase or wanted.job_key or wanted.prefix):
        return False
    only = Filter(wanted.queue, job_key=wanted.job_key, prefix=wanted.prefix, table=wanted.table)
    if not (wanted.job_key or wanted.prefix):
        only = only._replace(phase=wanted.phase)
    is_all = only == wanted._replace(newest=False, after=0, limit=only.limit)
    most = FEW_IDS if is_all else FEW
    return store.count(only._replace(few=True, limit=most + 1)) <= most


def page(
    store: Store,
    searches: Sequence[Search],
    after: Mapping[int, int],
    limit: int,
    seconds: float = SECONDS,
    *,
    began: float | None = None,
) -> Page:
    """Jobs of several queues, merged by the time at which they were added. `began`: when its time began, if it was some
    time ago."""
    stop, most = (time.monotonic() if began is None else began) + seconds, limit + 1
    looks = [look(store, search, after.get(search.wanted.queue, 0), most, 0.0) for search in searches]
    while time.monotonic() <= stop and any(one.looked for one in looks):  # one step in each queue, while there is time
        pairs = zip(searches, looks, strict=True)
        looks = [one.and_on(store, search, most) if one.looked else one for search, one in pairs]
    way = -1 if any(search.wanted.newest for search in searches) else 1
    shown = list(islice(merge(*(one.rows for one in looks), key=lambda row: way * row.create_time), limit))
    looked = sum(one.looked for one in looks) if len(shown) < limit else 0
    return Page(shown, _following(searches, looks, shown, after), looked)


def _following(
    searches: Sequence[Search], looks: Sequence[Look], shown: Sequence[Brief], after: Mapping[int, int]
) -> dict[int, int]:
    """Where the next page begins in each queue; nothing, if there is none."""
    last = {queue_of(row.id): row.id for row in shown}
    following, is_more = dict[int, int](), False
    for search, found in zip(searches, looks, strict=True):
        queue = search.wanted.queue
        is_left = bool(found.rows) and found.rows[-1].id != last.get(queue)
        is_more |= is_left or found.after > 0
        place = last.get(queue, after.get(queue, 0)) if is_left else found.after or search.exhausted
        following |= {queue: place} if place else {}
    return following if is_more else {}


def count(store: Store, searches: Sequence[Search], most: int, seconds: float = SECONDS / 2) -> Counted:
    """How many there are: counting stops at `most`, or when it takes too long."""
    stop, jobs, is_all = time.monotonic() + seconds, 0, True
    for place, search in enumerate(searches):
        if place >= QUEUES and time.monotonic() > stop:
            return Counted(jobs, False)
        for found, is_last in _counts(store, search, most, stop):
            jobs += found
            if jobs >= most:
                return Counted(most, False)
            if time.monotonic() > stop and not is_last:
                is_all = False
                break
    return Counted(jobs, is_all)


def _counts(store: Store, search: Search, most: int, stop: float) -> Iterator[tuple[int, bool]]:
    """Step by step: how many more, and whether these are the last."""
    if search.is_meant is None:
        for window in _windows(store, search, 0):
            yield store.count(window._replace(limit=most)), search.ends_at(window.until)
        return
    after, is_last = 0, False
    while not is_last:
        found = look(store, search, after, _SOME, stop)
        after, is_last = found.after, not found.after
        yield len(found.rows), is_last
