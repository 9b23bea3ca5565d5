"""What several shards say, as one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeVar

from msgspec.structs import replace

from hipq.job.activity import Activity
from hipq.stores.claims import Turned
from hipq.stores.filters import AnswerFilter, Filter
from hipq.stores.values import Counts, Depth, Limits, Maintained

T = TypeVar("T")


def by_id(parts: Iterable[Iterable[T]], wanted: Filter | AnswerFilter) -> list[T]:
    """The first of all by their ids, in the order that is wanted."""
    found: list[Any] = [one for part in parts for one in part]
    found.sort(key=lambda one: one.id, reverse=wanted.newest)
    return found[: wanted.limit]


def first(moments: Iterable[int]) -> int:
    """The first of some moments, of which 0 is none."""
    return min(filter(None, moments), default=0)


def depths(parts: Sequence[Sequence[Depth]], most: int) -> list[Depth]:
    found: dict[tuple[str, str], Depth] = {}
    for one in (one for part in parts for one in part):
        before = found.get((one.phase, one.job_type))
        if before:
            due = first((before.due, one.due))
            found[one.phase, one.job_type] = replace(one, jobs=min(before.jobs + one.jobs, most), due=due)
        else:
            found[one.phase, one.job_type] = one
    return list(found.values())


def counts(parts: Sequence[Counts], most: int) -> Counts:
    merged = Counts(*(min(sum(values), most) for values in zip(*parts, strict=True)))
    return merged._replace(
        next_start=first(one.next_start for one in parts), next_timeout=first(one.next_timeout for one in parts)
    )


def turns(parts: Sequence[Turned]) -> Turned:
    """The results of changes, in several shards, that claimed nothing."""
    return Turned(
        frozenset().union(*(one.lost for one in parts)),
        [],
        [child for one in parts for child in one.children],
        answered={job: row for one in parts for job, row in one.answered.items()},
        placed=[placed for one in parts for placed in one.placed],
    )


def limits(parts: Sequence[Limits]) -> Limits:
    """The whole limits, and all that holds some of them."""
    held: dict[str, int] = {}
    for one in parts:
        for lane, units in one.held.items():
            held[lane] = held.get(lane, 0) + units
    holders = sorted((one for part in parts for one in part.holders), key=lambda one: -one.held)
    note = next((one.note for one in parts if one.note), "")
    return Limits(replace(parts[0].rules, slice=None), "{}", held, holders, note)


def activities(parts: Iterable[Iterable[Activity]]) -> list[Activity]:
    """Summed up by period, queue and job type. The queues' numbers must be those of one shard already."""

    def key(one: Activity) -> tuple[int, int, str]:
        return one.starts, one.queue, one.job_type

    rows = sorted((one for part in parts for one in part), key=key)
    return [_sum(some) for _, some in groupby(rows, key)]


def _sum(rows: Iterable[Activity]) -> Activity:
    first, *rest = rows
    for one in rest:
        first += one
    return first


def maintained(parts: Sequence[Maintained]) -> Maintained:
    return Maintained(
        sum(one.late for one in parts), sum(one.answers for one in parts), sum(one.progress for one in parts),
        any(one.folded for one in parts),
    )  # fmt: skip


def sums(parts: Iterable[dict[str, T]], add: Callable[[T, T], T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for part in parts:
        for name, value in part.items():
            found[name] = add(found[name], value) if name in found else value
    return found
