"""A ring is never lost."""

from __future__ import annotations

import os
import threading
import time

from hipq.stores.waker import Bell


class RungLate(Bell):
    """Somebody rings right after a wait has looked whether anybody had."""

    looks = 0
    flag = False

    @property
    def _rung(self) -> bool:
        seen = self.flag
        self.looks += 1
        if self.looks == 2:
            self.flag = True
        return seen

    @_rung.setter
    def _rung(self, value: bool) -> None:
        self.flag = value


def test_a_ring_at_the_end_of_a_wait_is_heard_by_the_next() -> None:
    bell = RungLate()
    assert bell.wait(0) == (False, [])
    assert bell.wait(60) == (True, [])
    assert bell.wait(0) == (False, [])
    bell.close()


def test_a_nudge_ends_a_wait_and_is_no_news() -> None:
    bell = Bell()
    threading.Timer(0.05, bell.nudge).start()
    began = time.monotonic()
    assert bell.wait(60) == (False, [])
    assert time.monotonic() - began < 30
    bell.nudge()
    assert bell.wait(60) == (False, [])
    assert bell.wait(0) == (False, [])
    bell.close()


def test_a_nudge_that_was_heard_otherwise_does_not_end_a_wait() -> None:
    bell = Bell()
    bell.nudge()
    bell.hush()
    began = time.monotonic()
    assert bell.wait(0.05) == (False, [])
    assert time.monotonic() - began >= 0.045
    bell.close()


def test_a_ring_beside_a_nudge_is_news_and_is_not_hushed() -> None:
    bell = Bell()
    bell.ring()
    bell.nudge()
    bell.hush()
    assert bell.wait(60) == (True, [])
    bell.close()


def test_a_nudge_beside_other_news_is_seen_by_who_looks_at_those() -> None:
    bell = Bell()
    reading, writing = os.pipe()
    os.write(writing, b"!")
    bell.nudge()
    assert bell.wait(60, (reading,)) == (False, [reading])
    assert bell.nudged
    assert bell.wait(60) == (False, [])
    assert not bell.nudged
    bell.close()
    os.close(reading)
    os.close(writing)
