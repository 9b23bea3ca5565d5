"""Picking from claim groups. A claim group is the ready jobs of one queue that limits, windows and pauses cannot tell
apart: one type, lane, windows, throttle_factor.

If its head may not start, none of it may: so a million blocked jobs are passed over by looking at one. A claim merges
the heads of claim groups, in the order of the whole queue or, if lanes are fair, lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from hipq.errors import Invalid
from hipq.job import windows
from hipq.job.order import BEHIND
from hipq.limits.admission import Admission
from hipq.limits.rules import Rules

RankPosition = tuple[str, int]
"""A job's rank and id: where it stands in its queue."""
TOP: Final[RankPosition] = (BEHIND, 0)
"""A place after those of all jobs."""


class ClaimGroup(NamedTuple):
    job_type: str
    lane: str
    time_windows: str
    factor: int


class Head(NamedTuple):
    """A claim group and its first job."""

    group: ClaimGroup
    place: RankPosition


More = Callable[[Sequence[tuple[ClaimGroup, RankPosition]], int], list[list[RankPosition]]]
"""Reads, for each of these claim groups, up to this many places after a given one, in order."""


def is_known_open(time_windows: str, now: int) -> bool | None:
    """Whether these windows are open now; None if this machine does not know their time zone: such jobs are left to
    engines that do."""
    try:
        return windows.is_open(time_windows, now)
    except Invalid as error:
        _warn(time_windows, str(error))
        return None


@lru_cache(maxsize=1024)
def _warn(time_windows: str, reason: str) -> None:
    """Log, once for each, windows that this machine cannot tell."""
    import logging  # programs that only add jobs need not load it

    logging.getLogger("hipq").warning("jobs with the windows %.300s do not start here: %s", time_windows, reason)


class Seen(NamedTuple):
    """What the rules say of these claim groups, before any limit is asked for room."""

    able: list[Head]
    closed: set[str]
    """The windows that are closed."""
    barred: bool
    """Whether some claim groups are paused, or have a time zone that this machine does not know."""


def seen(heads: Iterable[Head], rules: Rules, now: int) -> Seen:
    able: list[Head] = []
    closed: set[str] = set()
    barred = False
    for head in heads:
        group = head.group
        is_open = is_known_open(group.time_windows, now)
        if is_open is None or group.lane in rules.paused_lanes or group.job_type in rules.paused_types:
            barred = True
        elif is_open:
            able.append(head)
        else:
            closed.add(group.time_windows)
    return Seen(able, closed, barred)


class _Line:
    """One claim group as it is being read, its next place first. The places after that are read in growing steps."""

    def __init__(self, head: Head) -> None:
        self.group = head.group
        self.place = head.place
        self.ahead: list[RankPosition] = []
        self.step = 0
        self.ended = False


class _Reading:
    """Reads the places of groups: of each twice its part of what can start, and then more and more of those that go
    on."""

    def __init__(self, want: int, room: int, more: More) -> None:
        self._want = want
        self._likely = min(want, room)
        self._more = more

    def next(self, line: _Line, of: Sequence[_Line]) -> bool:
        """Step to the next place of a group. False = it has none. The first time, the places of the lines `of` are read
        along with it."""
        if not line.ahead and not line.ended:
            fresh = [one for one in of if not one.step and not one.ended] if not line.step else [line]
            if line not in fresh:
                fresh.append(line)
            step = min(line.step * 4 or max(2 * self._likely // len(fresh), 2), self._want)
            found = self._more([(one.group, one.place) for one in fresh], step)
            for one, places in zip(fresh, found, strict=True):
                one.ahead, one.step, one.ended = places[::-1], step, len(places) < step
        if not line.ahead:
            return False
        line.place = line.ahead.pop()
        return True


def in_order(heads: Sequence[Head], want: int, admission: Admission, more: More) -> list[int]:
    """The first jobs of all claim groups that may start, in the queue's order."""
    reading = _Reading(want, admission.room, more)
    lines = [_Line(head) for head in sorted(heads, key=lambda head: head.place)]
    near = lines[:want]  # no more claim groups than that can have a part in it, if all may start
    heap = [(line.place, index) for index, line in enumerate(lines)]
    heapify(heap)
    picked: list[int] = []
    while heap and len(picked) < want:
        place, index = heappop(heap)
        line = lines[index]
        if not _admitted(line, admission):
            continue  # what does not fit now fits no more in this claim: nor does anything else of its claim group
        picked.append(place[1])
        if len(picked) < want and reading.next(line, near):
            heappush(heap, (line.place, index))
    return picked


class _Lane:
    """The claim groups of one lane. The one that was served last has not stepped on yet."""

    def __init__(self, lines: list[_Line]) -> None:
        self.lines = lines
        self.served: _Line | None = None


class LaneTurns:
    """Picks one job of each lane in turn, within a lane in order, until there are as many as are wanted. Every lane has
    its first before any has its second: lanes are listed some at a time, and `go_on` comes when all were."""

    def __init__(self, want: int, admission: Admission, more: More) -> None:
        self._want = want
        self._admission = admission
        self._reading = _Reading(want, admission.room, more)
        self._lanes: list[_Lane] = []
        self.picked: list[int] = []
        self.last = ""
        """The lane that came last."""

    @property
    def done(self) -> bool:
        return len(self.picked) >= self._want

    def first(self, heads: Iterable[Head]) -> None:
        """Serve the first job of each of these lanes, in the order of their names."""
        lanes: dict[str, list[_Line]] = {}
        for head in heads:
            lanes.setdefault(head.group.lane, []).append(_Line(head))
        self._serve([_Lane(lanes[name]) for name in sorted(lanes)])

    def go_on(self) -> None:
        """Serve the lanes round after round."""
        while self._lanes and not self.done:
            waiting, self._lanes = self._lanes, []
            served = [lane.served for lane in waiting if lane.served]
            for lane in waiting:
                if lane.served and not self._reading.next(lane.served, served):
                    lane.lines.remove(lane.served)
            self._serve(waiting)

    def _serve(self, lanes: Iterable[_Lane]) -> None:
        for lane in lanes:
            if self.done:
                return
            for line in sorted(lane.lines, key=lambda line: line.place):
                if _admitted(line, self._admission):
                    self.picked.append(line.place[1])
                    self.last = line.group.lane
                    lane.served = line
                    self._lanes.append(lane)
                    break
                lane.lines.remove(line)


def _admitted(line: _Line, admission: Admission) -> bool:
    group = line.group
    return admission.admits(group.job_type, group.lane, group.factor, line.place)
