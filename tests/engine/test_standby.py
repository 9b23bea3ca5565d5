"""Who looks when another process tells of a job: nobody whom it does not concern, one at once, few of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from hipq import Hipq, Job
from hipq.engine.loop import Engine
from hipq.engine.standby import LATER, POLLS, Standby
from hipq.job.model import QUEUE_BITS
from hipq.stores.claim_groups import TOP
from hipq.stores.values import Crew
from hipq.stores.waker import ELSEWHERE, News
from tests.engine.working import until, working

pytestmark = pytest.mark.every_store

SIZE = 32


def crew(size: int) -> list[Standby]:
    found = [Standby() for _ in range(size)]
    for place, standby in enumerate(found):
        standby.renewed(Crew(size, place))
    return found


def told(queue: int, number: int = 1) -> News:
    return {queue: ("", number << QUEUE_BITS | queue)}


@contextmanager
def engines(*apps: Hipq) -> Iterator[list[Engine]]:
    with ExitStack() as stack:
        found = []
        for app in apps:
            found.append(app.engine())
            stack.callback(found[-1].executor.close)
        yield found


def settle(engine: Engine) -> None:
    """Turn until there is nothing to do."""
    while engine.turn() == 0:
        pass


def declared(app: Hipq) -> Hipq:
    @app.queue("orders").job
    def work(_: Job[Any]) -> None: ...

    assert app.declared.find("orders").number
    return app


class TestTheOrder:
    @pytest.mark.parametrize("size", [1, 2, 3, 7, SIZE])
    def test_one_engine_looks_at_once_and_few_later(self, size: int) -> None:
        some = crew(size)
        for number in range(3 * size):
            turns = [standby.turn(number << QUEUE_BITS | 5) for standby in some]
            assert sorted(turn for turn in turns if turn is not None) == list(LATER[:size])

    def test_each_of_them_is_first_once_in_a_while(self) -> None:
        some = crew(SIZE)
        first = [standby.turn(number << QUEUE_BITS) for number in range(SIZE) for standby in some].count(0)
        assert first == SIZE
        assert all(0 in [standby.turn(number << QUEUE_BITS) for number in range(SIZE)] for standby in some)

    def test_an_engine_that_is_alone_always_looks_at_once(self) -> None:
        alone = Standby()
        assert [alone.turn(number << QUEUE_BITS) for number in range(5)] == [0] * 5

    def test_who_comes_late_and_is_needed_comes_earlier_until_it_looks_in_vain(self) -> None:
        (standby, *_) = crew(SIZE)
        late = next(number for number in range(SIZE) if standby.turn(number << QUEUE_BITS))
        for _ in range(SIZE.bit_length()):
            standby.late = True
            standby.looked(True)
        assert [standby.turn(number << QUEUE_BITS) for number in range(SIZE)] == [0] * SIZE
        for _ in range(SIZE.bit_length()):
            standby.in_vain()
        assert standby.turn(late << QUEUE_BITS) != 0

    def test_idle_engines_share_the_polls(self) -> None:
        assert [standby.share for standby in crew(POLLS)] == [1.0] * POLLS
        assert sum(1 / standby.share for standby in crew(SIZE)) == pytest.approx(POLLS)


class TestNews:
    def test_news_of_a_queue_that_an_engine_does_not_serve_is_nothing_to_it(self, app: Hipq) -> None:
        declared(app)
        with engines(app) as (engine,):
            settle(engine)
            assert not engine.wake(told(queue=4711))
            assert not engine.wake({4711: TOP})
            assert engine.turn() > 0.1

    def test_a_job_elsewhere_is_one_engines_to_claim(self, make_app: Callable[[], Hipq]) -> None:
        apps = [declared(make_app()) for _ in range(3)]
        queue = apps[0].declared.find("orders").number
        with engines(*apps) as some:
            for engine in some:
                settle(engine)
            renew(some)
            for number in range(6):
                woken = [engine.watches[queue].may_have_work for engine in some if engine.wake(told(queue, number))]
                assert woken.count(True) == 1
                for engine in some:
                    settle(engine)
                renew(some)

    def test_news_for_all_is_for_all(self, make_app: Callable[[], Hipq]) -> None:
        apps = [declared(make_app()) for _ in range(2)]
        queue = apps[0].declared.find("orders").number
        with engines(*apps) as some:
            for engine in some:
                settle(engine)
            renew(some)
            for news in ({queue: TOP}, None):
                assert [engine.wake(news) if news else engine.wake() for engine in some] == [True, True]

    def test_an_engine_with_no_free_hand_claims_when_it_has_one(self, app: Hipq) -> None:
        declared(app)
        queue = app.declared.find("orders").number
        with engines(app) as (engine,):
            settle(engine)
            engine.batch.prefetch.room = lambda free: 0  # type: ignore[method-assign]  # noqa: ARG005
            for news in (told(queue), {ELSEWHERE: ("", 0)}):
                engine.watches[queue].may_have_work = False
                assert not engine.wake(news)
                assert engine.watches[queue].may_have_work

    def test_jobs_of_another_process_start_whoever_is_busy(self, make_app: Callable[[], Hipq]) -> None:
        ran: list[int] = []
        apps = []
        for _ in range(3):
            apps.append(make_app())

            @apps[-1].queue("orders").job
            def work(job: Job[int]) -> None:
                ran.append(job.data)

            assert apps[-1].declared.find("orders").number
        client = declared(make_app())
        with working(*apps, concurrency=1):
            until(lambda: len(client.store.engines()) == len(apps))
            for number in range(12):
                client.declared.find("orders").enqueue("work", number)
                until(lambda number=number: number in ran)  # type: ignore[misc]
        assert sorted(ran) == list(range(12))


def renew(some: list[Engine]) -> None:
    """Let them count each other."""
    for engine in some:
        engine.timetable.sweep = 0
        settle(engine)


def test_the_first_look_at_many_queues_says_where_to_claim(app: Hipq) -> None:
    ran: list[str] = []
    for letter in "abcdefghijkl":

        @app.queue(f"queue_{letter}").job("work")
        def work(job: Job[str]) -> None:
            ran.append(job.data)

    app.declared.find("queue_k").enqueue("work", "k")
    claims: list[int] = []
    turn = app.store.turn

    def counted(engine_id: int, changes: object, asked: list[object], now: int) -> object:
        claims.append(len(asked))
        return turn(engine_id, changes, asked, now)  # type: ignore[arg-type]

    app.store.turn = counted  # type: ignore[method-assign, assignment]
    app.run(until_empty=True)
    assert ran == ["k"]
    assert sum(claims) <= 2
