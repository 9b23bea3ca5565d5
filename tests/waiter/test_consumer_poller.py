"""Beside a consumer runs exactly one poller: replaced if it dies, and gone when the consumer is."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from hipq.waiter import Waiter, supervised
from hipq.waiter.supervised import Supervised
from tests.waiter.cloud import Cloud, message
from tests.waiter.consuming import eventually, working

NAME = "hipq-waiter-poller"


def pollers() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


def test_what_is_due_comes_from_the_table_to_its_handler(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table(delay=0.2)
    seen: list[str] = []
    waiter.handle(queue)(lambda message: seen.append(message.body))
    cloud.fill(queue, [message(queue, "far", 10_000), message(queue, "due", -5)])
    with working(waiter, poller=True):
        eventually(lambda: seen)
        assert pollers() == 1
    assert seen == ["due"]
    assert pollers() == 0
    assert [one["sqs_message_body"]["S"] for one in cloud.items(queue)] == ["far"]


def test_without_a_poller_nothing_is_taken_from_the_table(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table(delay=0.2)
    seen: list[str] = []
    waiter.handle(queue)(lambda message: seen.append(message.body))
    cloud.fill(queue, [message(queue, "due", -5)])
    waiter.send(queue, "now")
    with working(waiter, poller=False):
        eventually(lambda: seen)
        assert pollers() == 0
    assert seen == ["now"]


class Mortal(Waiter):
    """Its pollers die, the first two of them."""

    lives = 0
    at_once = 0
    most = 0

    def run(self, stop: threading.Event) -> None:
        self.lives += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            if self.lives == 1:
                raise RuntimeError("a bug")
            if self.lives == 2:
                return
            super().run(stop)
        finally:
            self.at_once -= 1


def test_a_poller_that_dies_is_replaced_by_one(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervised, "FIRST_PAUSE", 0.1)
    queue, other = cloud.with_table()
    waiter = Mortal([queue], delay=0.2, endpoint_url=cloud.endpoint)
    seen: list[str] = []
    waiter.handle(queue)(lambda message: seen.append(message.body))
    cloud.fill(queue, [message(queue, "due", -5)])
    with working(waiter, poller=True):
        eventually(lambda: seen)
    assert (waiter.lives, waiter.most, waiter.at_once) == (3, 1, 0)
    assert "the poller died, another one follows" in caplog.text
    assert "the poller ended by itself, another one follows" in caplog.text
    assert other.queues == (queue,)


def test_deaths_in_a_row_are_waited_for_longer_each_time() -> None:
    now, born = 1000.0, list[float]()
    one = Supervised("poller", lambda _: born.append(now))
    for _ in range(80):
        one.ensure_running(now)
        eventually(lambda: not one.is_alive)
        now += 0.5
    assert [after - before for before, after in pairwise(born)] == [1, 2, 4, 8, 16]
    one.stop()
    one.ensure_running(now + 1000)
    assert len(born) == 6
