"""Picking from strands.

A strand is the ready jobs of one queue that limits, windows and pauses cannot tell apart: one type, lane, windows and
throttle_factor. If its head may not start, none of it may: so a million blocked jobs are passed over by looking at one.
A claim merges the heads of strands, in the order of the whole queue or, fairly, lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from hipq.errors import Invalid
from hipq.job import windows
from hipq.throttlers.admission import Admission
from hipq.throttlers.rules import Rules

Place = tuple[int, int]
"""A job's rank and id: where it stands in its queue."""


class Strand(NamedTuple):
    job_type: str
    lane: str
    time_windows: str
    factor: int


class Head(NamedTuple):
    """A strand and its first job."""

    strand: Strand
    place: Place


More = Callable[[Sequence[tuple[Strand, Place]], int], list[list[Place]]]
"""For each of some strands, up to so many places after a given one, in order."""


def is_known_open(time_windows: str, now: int) -> bool | None:
    """None for a time zone this machine has never heard of: such jobs are left to engines that have."""
    try:
        return windows.is_open(time_windows, now)
    except Invalid:
        return None


class Seen(NamedTuple):
    """What the rules say of some strands, before there is any talk of room."""

    able: list[Head]
    closed: set[str]
    """The windows that are closed."""
    paused: bool
    """Some are."""


def seen(heads: Iterable[Head], rules: Rules, now: int) -> Seen:
    able: list[Head] = []
    closed: set[str] = set()
    paused = False
    for head in heads:
        strand = head.strand
        is_open = is_known_open(strand.time_windows, now)
        if is_open is None:
            continue
        if strand.lane in rules.paused_lanes or strand.job_type in rules.paused_types:
            paused = True
        elif is_open:
            able.append(head)
        else:
            closed.add(strand.time_windows)
    return Seen(able, closed, paused)


class _Line:
    """One strand as it is being read: its next place first; the places after it come in growing steps."""

    def __init__(self, head: Head) -> None:
        self.strand = head.strand
        self.place = head.place
        self.ahead: list[Place] = []
        self.step = 0
        self.ended = False


class _Lines:
    def __init__(self, heads: Sequence[Head], want: int, more: More) -> None:
        self._want = want
        self._more = more
        self.lines = [_Line(head) for head in sorted(heads, key=lambda head: head.place)]

    def following(self, line: _Line, of: Sequence[_Line]) -> bool:
        """Step to its next place; False when it has none. The first time, the lines `of` are read along with it."""
        if not line.ahead and not line.ended:
            fresh = [one for one in of if not one.step and not one.ended] if not line.step else [line]
            if line not in fresh:
                fresh.append(line)
            step = min(line.step * 4 or max(2 * self._want // len(fresh), 2), self._want)
            found = self._more([(one.strand, one.place) for one in fresh], step)
            for one, places in zip(fresh, found, strict=True):
                one.ahead, one.step, one.ended = places[::-1], step, len(places) < step
        if not line.ahead:
            return False
        line.place = line.ahead.pop()
        return True


def in_order(heads: Sequence[Head], want: int, admission: Admission, more: More) -> list[int]:
    """The first jobs of all strands that may start, in the queue's order."""
    lines = _Lines(heads, want, more)
    near = lines.lines[:want]  # no more strands than that can have a part in it, if all may start
    heap = [(line.place, index) for index, line in enumerate(lines.lines)]
    heapify(heap)
    picked: list[int] = []
    while heap and len(picked) < want:
        place, index = heappop(heap)
        line = lines.lines[index]
        if not _admitted(line, admission):
            continue  # what does not fit now fits no more in this claim: nor does anything else of its strand
        picked.append(place[1])
        if len(picked) < want and lines.following(line, near):
            heappush(heap, (line.place, index))
    return picked


def in_turn(heads: Sequence[Head], want: int, admission: Admission, more: More, after: str) -> tuple[list[int], str]:
    """One job of each lane in turn, beginning behind the lane `after`; within a lane in order. Also the lane that came
    last."""
    lines = _Lines(heads, want, more)
    lanes: dict[str, list[tuple[Place, int]]] = {}
    for index, line in enumerate(lines.lines):
        lanes.setdefault(line.strand.lane, []).append((line.place, index))  # sorted, so a heap
    turn = sorted(lanes, key=lambda lane: (lane <= after, lane))
    picked: list[int] = []
    last = after
    while turn and len(picked) < want:
        round_, turn = turn, []
        for number, lane in enumerate(round_):
            if len(picked) == want:
                turn += round_[number:]
                break
            heap = lanes[lane]
            while heap:
                place, index = heappop(heap)
                line = lines.lines[index]
                if _admitted(line, admission):
                    picked.append(place[1])
                    last = lane
                    if lines.following(line, lines.lines):
                        heappush(heap, (line.place, index))
                    break
            if heap:
                turn.append(lane)
    return picked, last


def _admitted(line: _Line, admission: Admission) -> bool:
    strand = line.strand
    return admission.admits(strand.job_type, strand.lane, strand.factor, line.place[1])
