"""Sleeping until there is something to do. The only tests in which real time passes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from hipq.stores.claim_groups import TOP
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from hipq.stores.waker import ELSEWHERE, HERE
from tests.contract import other_process
from tests.contract.database import Database
from tests.contract.jobs import TYPE, everything, new

LONG: Final = 30.0
"""How long a store may sleep; `PROMPT` is how soon it must be awake."""
PROMPT: Final = 15.0


def slept(store: Store, until: Callable[[], bool]) -> float:
    """Seconds until something is true, when a wait is all that is done about it. Waking for nothing is allowed."""
    started = time.monotonic()
    while not until() and store.waker.wait(LONG):
        pass
    return time.monotonic() - started


@contextmanager
def soon(act: Callable[[], object]) -> Iterator[None]:
    """Do it in another thread once this one sleeps."""
    timer = threading.Timer(0.2, act)
    timer.start()
    yield
    timer.join()


class TestWaking:
    def test_a_wait_lasts_as_long_as_it_was_told(self, store: Store, queue: QueueTables) -> None:
        store.peek([(queue.number, (TYPE,))])
        for _ in range(5):  # the first may end early: what happened before counts as news
            started = time.monotonic()
            woken = store.waker.wait(0.1)
            lasted = time.monotonic() - started
        assert not woken
        assert 0.09 <= lasted < PROMPT

    def test_a_wait_of_no_time_returns_at_once(self, store: Store) -> None:
        started = time.monotonic()
        store.waker.wait(0)
        assert time.monotonic() - started < PROMPT

    def test_another_process_wakes_us_by_adding_a_job(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        with other_process.start("enqueue", database.url, queue.number) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            for jobs in (1, 2, 3):
                print(file=process.stdin, flush=True)
                assert slept(store, lambda jobs=jobs: len(ids(store, queue)) == jobs) < PROMPT  # type: ignore[misc]
            process.stdin.close()
            assert process.wait(10) == 0

    def test_news_of_another_process_says_which_queue_it_is_about_or_nothing_of_queues(
        self, store: Store, other: Store, queue2: QueueTables
    ) -> None:
        while store.waker.wait(0.05):
            pass  # what happened before
        other.enqueue([new(queue2.number)])
        heard = store.waker.wait(LONG)
        assert set(heard) == {queue2.number if store.waker.hears_queues else ELSEWHERE}
        assert TOP not in heard.values()

    def test_a_ring_of_this_process_is_about_any_of_its_queues(self, store: Store) -> None:
        while store.waker.wait(0.05):
            pass
        store.waker.notify()
        assert store.waker.wait(LONG) == {HERE: TOP}

    def test_another_store_object_wakes_us(self, store: Store, other: Store, queue: QueueTables) -> None:
        with soon(lambda: other.enqueue([new(queue.number)])):
            assert slept(store, lambda: bool(ids(store, queue))) < PROMPT

    def test_a_job_added_between_the_look_and_the_wait_is_not_slept_through(
        self, store: Store, other: Store, queue: QueueTables
    ) -> None:
        for _ in range(3):  # from the very first wait on
            store.peek([(queue.number, (TYPE,))])
            other.enqueue([new(queue.number)])
            started = time.monotonic()
            assert store.waker.wait(LONG)
            assert time.monotonic() - started < PROMPT

    def test_the_users_commit_wakes_us(self, store: Store, queue: QueueTables, database: Database) -> None:
        def act() -> None:
            conn = database.connect()
            store.enqueue([new(queue.number)], conn=conn)
            conn.commit()
            conn.close()

        with soon(act):
            assert slept(store, lambda: bool(ids(store, queue))) < PROMPT

    @pytest.mark.parametrize("jobs", [1, 2, 3, 10])
    def test_a_thread_that_adds_jobs_wakes_us(self, store: Store, queue: QueueTables, jobs: int) -> None:
        def act() -> None:
            for _ in range(jobs):
                store.enqueue([new(queue.number)])

        with soon(act):
            assert slept(store, lambda: bool(ids(store, queue))) < PROMPT

    def test_a_ring_from_a_thread_wakes_us(self, store: Store) -> None:
        rung = threading.Event()

        def act() -> None:
            rung.set()
            store.waker.notify()

        for _ in range(2):
            rung.clear()
            with soon(act):
                assert slept(store, rung.is_set) < PROMPT

    def test_a_ring_before_the_wait_is_not_lost(self, store: Store) -> None:
        store.waker.wait(0)
        for _ in range(3):
            store.waker.notify()
            started = time.monotonic()
            assert store.waker.wait(LONG)
            assert time.monotonic() - started < PROMPT

    def test_a_ring_beside_other_news_is_not_lost(self, store: Store, queue: QueueTables) -> None:
        store.waker.wait(0)
        for _ in range(5):
            store.enqueue([new(queue.number)])  # our own write: no news to us
            store.waker.notify()
            started = time.monotonic()
            assert store.waker.wait(LONG)
            assert time.monotonic() - started < PROMPT

    def test_a_ring_from_a_signal_handler_wakes_us(self, store: Store) -> None:
        rung: list[int] = []

        def handler(number: int, _: object) -> None:
            rung.append(number)
            store.waker.notify()

        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            assert slept(store, lambda: bool(rung)) < PROMPT
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def ids(store: Store, queue: QueueTables) -> list[int]:
    return [row.id for row in everything(store, queue.number)]
