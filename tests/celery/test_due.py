"""Publishers that are killed, several at once, a broker that is away: each task reaches it, and once, unless a crash
fell between the broker's yes and the database's."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hipq import Hipq
from tests.brokers.amqp import OwnRabbit
from tests.brokers.redis import OwnRedis
from tests.celery.messages import Case, kept_in
from tests.celery.running import Shop

SEND = """
sent = [note.apply_async((str(n),), countdown=3600).id for n in range({count})]
assert kept.jobs.count("eta", state="initial") == {count}
kept.jobs.retry_all("eta")
print(json.dumps(sent))
"""
"""Kept, and due now: no clock decides whether they are."""


def looked_at(db: str) -> Hipq:
    kept = Hipq("celery", db)
    kept.queue("eta")
    return kept


def states(db: str) -> Counter[tuple[str, str]]:
    kept = looked_at(db)
    try:
        return Counter((job.state, job.code) for job in kept.jobs("eta", type="publish", limit=10_000))
    finally:
        kept.close()


def ids_at_broker(shop: Shop) -> list[str]:
    return [json.loads(message)["headers"]["id"] for message in shop.waiting()]


def test_a_publisher_killed_before_the_broker_has_it(shop: Callable[..., Shop], tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/kept.db"
    killed(shop(db=db, SHOP_KILL="before", SHOP_ALONE="1"), db, times=1)


def test_a_publisher_killed_when_the_broker_has_it(shop: Callable[..., Shop], db: str) -> None:
    """The same id twice: the one case of two deliveries, and of a crash there is no other way."""
    killed(shop(db=db, SHOP_KILL="after", SHOP_ALONE="1"), db, times=2)


def killed(shop: Shop, db: str, times: int) -> None:
    (job_id,) = shop.send(SEND.format(count=1))
    with shop.publisher("--lease", "1") as first:
        shop.until(lambda: first.poll() is not None)
        assert first.returncode == -signal.SIGKILL
    assert states(db) == {("running", "NONE"): 1}
    with shop.publisher() as second:  # whose own lease no busy machine makes it lose
        shop.until(lambda: states(db) == {("final", "ok"): 1}, second)
    assert ids_at_broker(shop) == [job_id] * times


def test_several_publishers_publish_each_task_once(shop: Callable[..., Shop], db: str) -> None:
    many = shop(db=db, SHOP_ALONE="1")
    with many.publisher() as one, many.publisher() as two:
        sent = many.send(SEND.format(count=150))
        many.until(lambda: states(db) == {("final", "ok"): 150}, one)
        assert two.poll() is None
    assert Counter(ids_at_broker(many)) == Counter(sent)


def test_redis_away_when_a_task_is_due(tmp_path: Path) -> None:
    with OwnRedis() as server:
        away_when_due(server, tmp_path)


@pytest.mark.long  # RabbitMQ takes its time to start, and it does so twice
def test_rabbitmq_away_when_a_task_is_due(tmp_path: Path) -> None:
    with OwnRabbit() as server:
        away_when_due(server, tmp_path)


def away_when_due(server: OwnRedis | OwnRabbit, folder: Path) -> None:
    case = Case(server.url, broker_connection_timeout=1)
    with kept_in(case, folder) as kept:
        case.add.apply_async(task_id="before", countdown=3600)
        kept.jobs.retry_all("eta")
        kept.run(until_empty=True)  # so there is a connection that will be stale
        server.stop()
        case.add.apply_async(task_id="meanwhile", countdown=3600)
        kept.jobs.retry_all("eta")
        with kept.working():
            wait_for(kept, lambda: any(job.failures for job in kept.jobs("eta", key="meanwhile")))
            server.start()
            wait_for(kept, lambda: {job.code for job in kept.jobs("eta")} == {"ok"})
        assert case.got(2).keys() == {"before", "meanwhile"}
        (job,) = kept.jobs("eta", key="meanwhile")
        assert job.failures >= 1


def wait_for(kept: Hipq, what: Callable[[], bool]) -> None:
    until = time.monotonic() + 90
    while not what():
        assert time.monotonic() < until, kept.jobs("eta")
        time.sleep(0.05)
