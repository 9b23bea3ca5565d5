"""No notification is ever lost."""

from __future__ import annotations

import os
import threading
import time

from hipq.stores.waker import Waker


class LateNews(Waker):
    """Somebody notifies right after a wait has looked whether anybody had."""

    looks = 0
    flag = False

    @property
    def _news(self) -> bool:
        seen = self.flag
        self.looks += 1
        if self.looks == 2:
            self.flag = True
        return seen

    @_news.setter
    def _news(self, value: bool) -> None:
        self.flag = value


def test_news_at_the_end_of_a_wait_is_heard_by_the_next() -> None:
    waker = LateNews()
    assert waker.sleep(0) == (False, [])
    assert waker.sleep(60) == (True, [])
    assert waker.sleep(0) == (False, [])
    waker.close()


def test_a_handler_that_is_done_ends_a_wait_and_is_no_news() -> None:
    waker = Waker()
    threading.Timer(0.05, lambda: waker.notify(done=True)).start()
    began = time.monotonic()
    assert waker.sleep(60) == (False, [])
    assert time.monotonic() - began < 30
    waker.notify(done=True)
    assert waker.sleep(60) == (False, [])
    assert waker.sleep(0) == (False, [])
    waker.close()


def test_a_handler_whose_end_is_known_does_not_end_a_wait() -> None:
    waker = Waker()
    waker.notify(done=True)
    waker.clear()
    began = time.monotonic()
    assert waker.sleep(0.05) == (False, [])
    assert time.monotonic() - began >= 0.045
    waker.close()


def test_news_beside_a_handler_that_is_done_is_not_cleared() -> None:
    waker = Waker()
    waker.notify()
    waker.notify(done=True)
    waker.clear()
    assert waker.sleep(60) == (True, [])
    waker.close()


def test_a_handler_that_is_done_beside_other_news_is_seen_by_who_looks_at_those() -> None:
    waker = Waker()
    reading, writing = os.pipe()
    os.write(writing, b"!")
    waker.notify(done=True)
    assert waker.sleep(60, (reading,)) == (False, [reading])
    assert waker.has_done
    assert waker.sleep(60) == (False, [])
    assert not waker.has_done
    waker.close()
    os.close(reading)
    os.close(writing)
