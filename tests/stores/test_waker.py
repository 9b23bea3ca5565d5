"""A ring is never lost."""

from __future__ import annotations

import os
import threading
import time

from hipq.stores.waker import Waker


class RungLate(Waker):
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
    waker = RungLate()
    assert waker.sleep(0) == (False, [])
    assert waker.sleep(60) == (True, [])
    assert waker.sleep(0) == (False, [])
    waker.close()


def test_a_nudge_ends_a_wait_and_is_no_news() -> None:
    waker = Waker()
    threading.Timer(0.05, lambda: waker.notify(done=True)).start()
    began = time.monotonic()
    assert waker.sleep(60) == (False, [])
    assert time.monotonic() - began < 30
    waker.notify(done=True)
    assert waker.sleep(60) == (False, [])
    assert waker.sleep(0) == (False, [])
    waker.close()


def test_a_nudge_that_was_heard_otherwise_does_not_end_a_wait() -> None:
    waker = Waker()
    waker.notify(done=True)
    waker.clear()
    began = time.monotonic()
    assert waker.sleep(0.05) == (False, [])
    assert time.monotonic() - began >= 0.045
    waker.close()


def test_a_ring_beside_a_nudge_is_news_and_is_not_hushed() -> None:
    waker = Waker()
    waker.notify()
    waker.notify(done=True)
    waker.clear()
    assert waker.sleep(60) == (True, [])
    waker.close()


def test_a_nudge_beside_other_news_is_seen_by_who_looks_at_those() -> None:
    waker = Waker()
    reading, writing = os.pipe()
    os.write(writing, b"!")
    waker.notify(done=True)
    assert waker.sleep(60, (reading,)) == (False, [reading])
    assert waker.nudged
    assert waker.sleep(60) == (False, [])
    assert not waker.nudged
    waker.close()
    os.close(reading)
    os.close(writing)
