"""Counts by queue, and how long answers took."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq import Failed, Hipq, Wait
from hipq.events import Events
from hipq.observe.counts import BOUNDS, COUNTED, Counts, Waited
from hipq.testing.clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def app(tmp_path: Path, clock: HandClock) -> Iterator[Hipq]:
    app = Hipq("shop", f"sqlite:///{tmp_path}/shop.db", clock=clock)
    yield app
    app.close()


def some(**counts: int) -> dict[str, int]:
    """All that is counted, those not named 0 times."""
    return dict.fromkeys(COUNTED, 0) | {name.replace("_", " "): count for name, count in counts.items()}


def test_what_becomes_of_answers_and_jobs_is_counted_by_queue(app: Hipq, clock: HandClock) -> None:
    counts = Counts(app.events)
    assert (counts.by_queue, counts.waited) == ({}, {})
    orders, mails = app.queue("orders"), app.queue("mails")
    charge = orders.job("charge", timeout=60)(lambda _: Wait())
    charge.answered(lambda _, answer: answer.data)
    refuse = mails.job("refuse")(lambda _: Failed("no"))
    charge.enqueue(key="a")
    refuse.enqueue()
    refuse.enqueue()
    app.run(until_empty=True)
    assert counts.by_queue == {"mails": some(failed=2)}
    clock.advance(seconds=5)
    assert charge.answer("a", 1) == "matched"
    assert charge.answer("early", 1, answer_id="x") == "buffered"
    assert charge.answer("early", 1, answer_id="x") == "duplicate"
    app.run(until_empty=True)
    assert charge.answer("a", 2) == "conflict"
    gone = charge.enqueue(key="gone")
    charge.enqueue(key="slow")
    app.run(until_empty=True)
    app.cancel(gone)
    assert charge.answer("gone", 2) == "late"
    clock.advance(seconds=61)
    app.run(until_empty=True)
    expected = some(matched=1, buffered=1, duplicate=1, conflict=1, late=1, ok=1, timed_out=1, gave_up=1)
    assert counts.by_queue == {"mails": some(failed=2), "orders": expected}
    assert counts.waited == {"orders": Waited(1, 5.0, 5.0, dict(zip(BOUNDS, (0, 0, 0, 1, 1, 1, 1, 1), strict=True)))}


def test_a_job_ended_by_its_answer_and_one_that_finds_it_waiting_count_too(app: Hipq, clock: HandClock) -> None:
    counts = Counts(app.events)
    mail = app.queue("mails").job("mail")(lambda _: Wait())
    mail.enqueue(key="a")
    app.run(until_empty=True)
    clock.advance(seconds=70)
    assert mail.answer("a", 1) == "matched"  # and that ends it
    assert mail.answer("b", 1) == "buffered"
    mail.enqueue(key="b")
    app.run(until_empty=True)
    assert counts.by_queue == {"mails": some(matched=2, buffered=1, ok=2)}
    waited = counts.waited["mails"]
    assert (waited.count, waited.sum, waited.max) == (2, 70.0, 70.0)
    assert list(waited.buckets.values()) == [1, 1, 1, 1, 1, 2, 2, 2]


def test_buckets_have_those_at_their_bound_and_all_smaller_ones() -> None:
    events = Events()
    counts = Counts(events)
    for seconds in (0.0, 0.01, 0.011, 1.0, 3600.0, 86_400.0, 86_401.0):
        events.emit("matched", 0, "orders", waited=seconds)
    events.emit("matched", 0, "orders")  # it found no job that waited
    found = counts.waited["orders"]
    assert found.buckets == {0.01: 2, 0.1: 3, 1: 4, 10: 4, 60: 4, 600: 4, 3600: 5, 86_400: 6}
    assert (found.count, found.max) == (7, 86_401.0)
    assert found.sum == pytest.approx(176_402.021)
    assert counts.by_queue == {"orders": some(matched=8)}


def test_what_was_handed_out_does_not_change_nor_can_it_change_the_counts() -> None:
    events = Events()
    counts = Counts(events)
    events.emit("ok", 0, "orders")
    before = counts.by_queue
    events.emit("ok", 0, "orders")
    assert before == {"orders": some(ok=1)}
    before["orders"]["ok"] = 99
    assert counts.by_queue == {"orders": some(ok=2)}


def test_other_events_are_not_listened_to() -> None:
    events = Events()
    Counts(events)
    assert events.wanted("matched")
    assert not events.wanted("claimed")


def test_threads_lose_no_event() -> None:
    events, each = Events(), 2_000
    counts = Counts(events)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(name: str) -> None:
        for _ in range(each):
            events.emit("matched", 0, name, waited=0.5)
            events.emit("ok", 0, "shared")
            found = counts.waited[name]
            assert found.count == found.buckets[1.0]

    try:
        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert counts.by_queue == {**{name: some(matched=each) for name in "abcd"}, "shared": some(ok=4 * each)}
    assert [counts.waited[name].sum for name in "abcd"] == [each / 2] * 4
