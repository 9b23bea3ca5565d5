"""A poller may die anywhere: nothing is lost, and sent twice is only what it had sent and not yet deleted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from hipq.job.when import SECOND
from hipq.waiter.claims import CLAIM
from tests import processes
from tests.waiter.cloud import Calls, Clock, Cloud, Crash, message

AFTER_CLAIM = CLAIM / SECOND + 5
THREADS = 2


@pytest.mark.parametrize("plain", [3, pytest.param(23, marks=pytest.mark.long)])
def test_a_crash_between_any_two_calls_loses_nothing(cloud: Cloud, plain: int) -> None:
    """The poller ends after its first call, after its second, and so on, until it gets to the end. What is where is
    looked at; then another poller finishes."""
    queue, fifo, shared = cloud.queue(), cloud.queue(fifo=True), cloud.name()
    other = cloud.waiter(queue, fifo, table=shared, clock=Clock(AFTER_CLAIM))
    other.tables.create(queue)
    points, twice = 0, 0
    while True:
        messages = [message(queue, f"{points}-{n}", n - 100) for n in range(plain)]
        messages += [message(fifo, f"{points}-f{n}", n - 50, group="a", dedup=f"{points}-f{n}") for n in range(2)]
        cloud.fill(shared, messages)
        calls = Calls(crash_after=points)
        crashed = poll_until_crash(cloud, calls, queue, fifo, shared)

        arrived = cloud.bodies(queue) + cloud.bodies(fifo)
        kept = {item["sqs_message_body"]["S"] for item in cloud.items(shared)}
        for body in (one.body for one in messages):
            assert body in kept or arrived[body] == 1, f"{body} was lost by a crash after call {points}"
        both = kept & set(arrived)
        if calls.made[-1].operation not in ("SendMessageBatch", "DeleteItem"):
            assert not both  # only between a send and its deletes
        polled = other.poll()
        assert not polled.problems
        assert cloud.items(shared) == []
        again = cloud.bodies(queue) + cloud.bodies(fifo)
        twice += sum(again[body] for body in both)
        for one in messages:
            # A FIFO queue knows what was sent twice within five minutes.
            total, most = arrived[one.body] + again[one.body], 1 + (one.body in both)
            assert total == most or (one.fifo and total == 1), f"{one.body} came {total} times, call {points}"
        if not crashed:
            break
        points += 1
    # Table and page; where each queue is and what it takes; a claim and a delete for each; batches of ten, or of one.
    assert points == 2 + 4 + 2 * (plain + 2) + -(-plain // 10) + 2
    print(f"{points} points of a crash; {twice} messages arrived twice")
    assert twice > 0


def poll_until_crash(cloud: Cloud, calls: Calls, queue: str, fifo: str, shared: str) -> bool:
    waiter = cloud.waiter(queue, fifo, table=shared, threads=1)
    calls.watch(waiter)
    try:
        waiter.poll()
    except Crash:
        return True
    return False


@pytest.mark.parametrize(
    ("items", "kills"), [(100, 6), pytest.param(10_000, 90, marks=[pytest.mark.long])], ids=["100", "10000"]
)
def test_three_pollers_killed_at_random_lose_nothing(cloud: Cloud, items: int, kills: int) -> None:
    queue, _ = cloud.with_table()
    cloud.fill(queue, [message(queue, f"{n}", -1) for n in range(items)])
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    claimed: Counter[str] = Counter()
    left = items
    with pollers(cloud, queue) as start:
        for turn in range(kills // 3):
            # The claims of those who were killed have run out for the next ones, and of nobody else.
            pids = start(turn * AFTER_CLAIM, 3)
            at_most = max(left - items * 3 // kills, 1)
            wait_until_fewer(cloud, queue, chance.randint(at_most, left))
            for pid in pids:
                time.sleep(chance.random() * 0.05)
                os.kill(pid, signal.SIGKILL)
            left = cloud.count(queue)
            in_hand = cloud.items(queue, FilterExpression="attribute_exists(claimed_by)")
            claimed.update(item["sqs_message_body"]["S"] for item in in_hand)
    last = cloud.waiter(queue, clock=Clock((kills // 3) * AFTER_CLAIM))
    until = time.monotonic() + 60 + items / 5
    while cloud.count(queue) and time.monotonic() < until:
        polled = last.poll()
        assert not polled.problems
    arrived = cloud.bodies(queue)
    missing = {f"{n}" for n in range(items)} - set(arrived)
    assert not missing, f"seed {seed}"
    twice = {body: times for body, times in arrived.items() if times > 1}
    print(f"{items} items, {kills} kills: none lost, {sum(twice.values()) - len(twice)} duplicates; seed {seed}")
    for body, times in twice.items():  # what comes twice was in the hands of one who was killed
        assert times - 1 <= claimed[body], f"{body} came {times} times, seed {seed}"
    assert sum(twice.values()) - len(twice) <= kills * THREADS * 10
    assert set(arrived) == {f"{n}" for n in range(items)}


def wait_until_fewer(cloud: Cloud, table: str, than: int) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if cloud.count(table) <= than:
            return
        time.sleep(0.05)
    raise AssertionError("the pollers do nothing")


@contextmanager
def pollers(cloud: Cloud, queue: str) -> Iterator[StartPollers]:
    start = StartPollers(cloud.endpoint, queue)
    try:
        yield start
    finally:
        start.end()


class StartPollers:
    def __init__(self, endpoint: str, queue: str) -> None:
        self._process = processes.Popen(
            [sys.executable, "-m", "tests.waiter.killed", endpoint, queue, str(THREADS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._pids: list[int] = []

    def __call__(self, ahead: float, how_many: int) -> list[int]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{ahead} {how_many}\n")
        self._process.stdin.flush()
        pids = [int(one) for one in self._process.stdout.readline().split()]
        assert len(pids) == how_many
        self._pids += pids
        return pids

    def end(self) -> None:
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()
