"""Many callbacks at once: they share transactions, none spoils another, and nobody is let in without end."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hipq import Hipq
from hipq.callback.asgi import callbacks
from hipq.callback.deliver import MOST, AnswerBatches
from hipq.callback.http import Overloaded
from hipq.callback.rate_buckets import ADDRESSES, RateBuckets
from hipq.errors import StoreRefused, StoreUnavailable
from hipq.job.answer import Answered, NewAnswer
from tests.callback.conftest import call

Sign = Callable[..., str]


def test_callbacks_at_the_same_time_share_few_transactions(
    app: Hipq, charge: Any, sign: Sign, run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = charge.enqueue_many([None] * 200)
    run()
    tokens = [sign(job_id) for job_id in ids]
    batches: list[int] = []
    real = app.store.answer

    def answer(news: Sequence[NewAnswer], *rest: Any, **options: Any) -> Any:
        batches.append(len(news))
        return real(news, *rest, **options)

    monkeypatch.setattr(app.store, "answer", answer)
    application = callbacks(app)

    async def many() -> Counter[int]:
        found = await asyncio.gather(*(call(application, token, b"1") for token in tokens))
        return Counter(one.status for one in found if one)

    assert asyncio.run(many()) == {200: 200}
    assert sum(batches) == 200
    assert len(batches) <= 20
    run()
    assert [app.result(job_id) for job_id in ids] == [{"paid": 1}] * 200


def new(data: str) -> NewAnswer:
    return NewAnswer(1, "charge", "key", data, 0, 0, 0, 0, 0)


def outcomes(batches: AnswerBatches, makes: Sequence[Callable[[], NewAnswer]]) -> list[Any]:
    async def every() -> list[Any]:
        return await asyncio.gather(*(batches.deliver(make) for make in makes), return_exceptions=True)

    return asyncio.run(every())


@pytest.mark.parametrize("error", [StoreRefused, ZeroDivisionError])
def test_a_bad_one_does_not_spoil_the_others(error: type[Exception]) -> None:
    def deliver(news: Sequence[NewAnswer]) -> Sequence[Answered]:
        if any(one.data == "bad" for one in news):
            raise error("one of them")
        return [Answered.MATCHED] * len(news)

    def unreadable() -> NewAnswer:
        raise ValueError

    makes = [lambda number=number: new("bad" if number == 7 else "good") for number in range(50)]
    found = outcomes(AnswerBatches(deliver), [*makes, unreadable])
    assert [number for number, one in enumerate(found) if one != "matched"] == [7, 50]
    assert isinstance(found[7], error)
    assert isinstance(found[50], ValueError)


def test_while_the_database_is_away_nobody_tries_one_by_one() -> None:
    calls = []

    def deliver(news: Sequence[NewAnswer]) -> Sequence[Answered]:
        calls.append(len(news))
        raise StoreUnavailable

    found = outcomes(AnswerBatches(deliver), [lambda: new("good")] * 50)
    assert all(isinstance(one, StoreUnavailable) for one in found)
    assert sum(calls) == 50, "each of them was tried once"


def test_more_than_a_thousand_do_not_wait() -> None:
    goes_on = threading.Event()

    def deliver(news: Sequence[NewAnswer]) -> Sequence[Answered]:
        goes_on.wait(60)
        return [Answered.MATCHED] * len(news)

    batches = AnswerBatches(deliver)

    async def many() -> Counter[str]:
        first = asyncio.create_task(batches.deliver(lambda: new("first")))
        while batches._gathered or not batches._delivery:
            await asyncio.sleep(0.001)
        tasks = [asyncio.create_task(batches.deliver(lambda: new("next"))) for _ in range(MOST + 5)]
        await asyncio.sleep(0)
        goes_on.set()
        found = await asyncio.gather(first, *tasks, return_exceptions=True)
        return Counter("overloaded" if isinstance(one, Overloaded) else str(one) for one in found)

    assert asyncio.run(many()) == {"matched": MOST + 1, "overloaded": 5}


def test_one_who_goes_while_it_waits_does_not_hold_up_the_others() -> None:
    goes_on = threading.Event()

    def deliver(news: Sequence[NewAnswer]) -> Sequence[Answered]:
        goes_on.wait(60)
        return [Answered.MATCHED] * len(news)

    batches = AnswerBatches(deliver)

    async def many() -> list[Any]:
        tasks = [asyncio.create_task(batches.deliver(lambda: new("good"))) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        goes_on.set()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)

    found = asyncio.run(many())
    assert [found[0], found[2]] == ["matched"] * 2
    assert isinstance(found[1], asyncio.CancelledError)


# -- from one address ------------------------------------------------------------------------------------------------
class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_address_may_call_so_often() -> None:
    steady = Seconds()
    buckets = RateBuckets(10, steady)
    assert [buckets.take("a") for _ in range(21)] == [True] * 20 + [False]
    assert buckets.take("b")
    steady.now += 0.5
    assert [buckets.take("a") for _ in range(6)] == [True] * 5 + [False]
    steady.now += 1000
    assert sum(buckets.take("a") for _ in range(100)) == 20
    steady.now += 2
    buckets.charge("a", 9)
    assert sum(buckets.take("a") for _ in range(100)) == 11


def test_half_a_call_in_a_second_is_one_in_two() -> None:
    steady = Seconds()
    buckets = RateBuckets(0.5, steady)
    assert [buckets.take("a"), buckets.take("a")] == [True, False]
    steady.now += 2
    assert buckets.take("a")


def test_more_may_arrive_at_once_and_looking_takes_nothing() -> None:
    steady = Seconds()
    buckets = RateBuckets(0.5, steady, burst=3)
    assert all(buckets.has("a") for _ in range(5))
    for _ in range(3):
        buckets.charge("a", 1)
    assert [buckets.has("a"), buckets.has("b")] == [False, True]
    steady.now += 2
    assert buckets.has("a")


def test_memory_for_addresses_is_bounded_and_an_ipv6_network_is_one() -> None:
    buckets = RateBuckets(1, Seconds())
    for number in range(ADDRESSES + 50):
        buckets.take(f"10.0.{number >> 8}.{number & 255}")
    assert len(buckets._left) == ADDRESSES
    assert [buckets.take(f"2001:db8::{number}") for number in range(3)] == [True, True, False]
    assert buckets.take("2001:db8:0:1::1")
    assert [buckets.take(one) for one in ("::ffff:192.0.2.1", "::ffff:192.0.2.2", "fe80::1%eth0", "no:address")] == [
        True
    ] * 4


def test_no_rate_is_no_limit() -> None:
    buckets = RateBuckets(0, Seconds())
    assert all(buckets.take("a") for _ in range(10_000))
    buckets.charge("a", 10)
    assert buckets._left == {}


def test_who_calls_too_often_is_told_so_and_forgeries_cost_ten(
    app: Hipq, charge: Any, sign: Sign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq.callback.asgi.RateBuckets", lambda rate: RateBuckets(rate, Seconds()))  # no time passes
    token = sign(charge.enqueue())

    async def statuses(calls: Sequence[tuple[str, str]]) -> Counter[int]:
        application = callbacks(app, rate=10)
        found = [await call(application, token, b"1", client=(address, 1)) for token, address in calls]
        assert all(one.headers["retry-after"] == "1" for one in found if one and one.status == 429)
        return Counter(one.status for one in found if one)

    good = asyncio.run(statuses([(token, "192.0.2.1")] * 60))
    assert good == {202: 20, 429: 40}
    forged = asyncio.run(statuses([("A" * 76, "192.0.2.1")] * 12 + [(token, "192.0.2.2")]))
    assert forged[202] == 1
    assert forged[403] == 2
    assert asyncio.run(statuses([(token, "")] * 3))[202] == 3
