"""In which order due jobs start."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from hipq import Hipq, Job, Queue, aged
from hipq.job.when import to_datetime
from hipq.testing.clock import HandClock

pytestmark = pytest.mark.every_store

# Seed 000: "Imagine a table sorted first by scheduled time then by priority ascending."
TABLE = [("10:32", 700), ("10:33", 50), ("10:33", 100), ("10:40", 1), ("10:40", 7)]
SHUFFLED = [TABLE[3], TABLE[0], TABLE[2], TABLE[4], TABLE[1]]


def at(clock: HandClock, text: str) -> datetime:
    hour, minute = map(int, text.split(":"))
    return to_datetime(clock.now()).replace(hour=hour, minute=minute, second=0, microsecond=0) + timedelta(days=1)


def started(app: Hipq, queue: Queue, clock: HandClock) -> list[tuple[str, int]]:
    """Add the jobs in another order than they should start in, and let time pass beyond all of them."""
    seen: list[tuple[str, int]] = []

    @queue.job
    def note(job: Job[str]) -> None:
        seen.append((job.data, job.priority))

    for text, priority in SHUFFLED:
        note.enqueue(text, at=at(clock, text), priority=priority)
    app.run(until_empty=True)
    assert seen == []
    clock.advance(days=2)
    app.run(until_empty=True, concurrency=1)
    return seen


def test_time_order_is_the_table_of_seed_000(app: Hipq, clock: HandClock) -> None:
    assert started(app, app.queue("orders"), clock) == TABLE


def test_priority_order_sorts_by_priority_then_by_time(app: Hipq, clock: HandClock) -> None:
    expected = sorted(TABLE, key=lambda row: (row[1], row[0]))
    assert started(app, app.queue("orders", order="priority"), clock) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.11, [("10:33", 50), ("10:33", 100), ("10:32", 700), ("10:40", 1), ("10:40", 7)]),
        (0.0, [("10:32", 700), ("10:33", 50), ("10:33", 100), ("10:40", 1), ("10:40", 7)]),
        (60.0, [("10:40", 1), ("10:40", 7), ("10:33", 50), ("10:33", 100), ("10:32", 700)]),
    ],
)
def test_aged_order_trades_priority_for_waiting(
    app: Hipq, clock: HandClock, seconds: float, expected: list[tuple[str, int]]
) -> None:
    # A point is worth `seconds`: at 0.11 s priority 700 is 77 s later, so 10:32 comes after 10:33 + 5.5 s and + 11 s.
    found = started(app, app.queue("orders", order=aged(seconds)), clock)
    if seconds == 0.0:
        assert [row[0] for row in found] == [row[0] for row in expected]
    else:
        assert found == expected


def test_within_a_grain_priority_decides_and_across_grains_time(app: Hipq, clock: HandClock) -> None:
    queue = app.queue("orders", grain=60)
    seen: list[int] = []

    @queue.job
    def note(job: Job[int]) -> None:
        seen.append(job.data)

    note.enqueue(2, delay=100, priority=900)
    note.enqueue(1, delay=110, priority=5)
    note.enqueue(3, delay=170, priority=1)
    clock.advance(seconds=500)
    app.run(until_empty=True, concurrency=1)
    assert seen == [1, 2, 3]


def test_equal_jobs_start_in_the_order_they_were_added(app: Hipq, queue: Queue) -> None:
    seen: list[int] = []

    @queue.job
    def note(job: Job[int]) -> None:
        seen.append(job.data)

    note.enqueue_many(range(300))
    app.run(until_empty=True, concurrency=1)
    assert seen == list(range(300))


def test_several_types_share_one_order(app: Hipq, queue: Queue) -> None:
    seen: list[int] = []
    types = [queue.job(f"type{letter}")(lambda job: seen.append(job.data)) for letter in "abc"]
    for number in range(60):
        types[number % 3].enqueue(number)
    app.run(until_empty=True, concurrency=1)
    assert seen == list(range(60))
