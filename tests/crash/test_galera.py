"""A Galera cluster of three nodes: whichever is written, limits are exact, nothing runs twice and nothing is lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import msgspec
import pymysql
import pytest

from hipq.job.model import Row
from hipq.stores.mariadb.store import MariaStore
from tests.contract.jobs import add, claim, everything, new
from tests.crash.adders import Adding, most_at_once, runs_of
from tests.crash.program import TIMED_LIMIT, make_timed
from tests.crash.workers import Workers, eventually
from tests.galera import Node, cluster
from tests.mariadb_server import admin
from tests.stores.mariadb_races import race_at_a_limit, race_of_an_answer, seen

pytestmark = pytest.mark.long
LEASE = 240.0
"""Longer than a node is away: the jobs of its workers run on meanwhile, and are nobody else's."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    with cluster() as nodes:
        yield nodes


@pytest.fixture
def urls(nodes: list[Node]) -> list[str]:
    """One database, by each of its nodes."""
    name = f"hipq_{uuid4().hex}"
    with admin(nodes[0].url) as conn:
        conn.cursor().execute(f"CREATE DATABASE {name}")
    return [urlunsplit(urlsplit(node.url)._replace(path=f"/{name}")) for node in nodes]


@pytest.fixture
def stores(urls: list[str]) -> Iterator[list[MariaStore]]:
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(MariaStore(url))) for url in urls]
        stores[0].migrate()
        yield stores


def test_two_nodes_never_claim_under_a_limit_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, stores: list[MariaStore]
) -> None:
    queue = stores[0].queue("shop", "orders", "shop_orders")
    assert race_at_a_limit(monkeypatch, stores[0], stores[1], queue).met


def test_an_answer_on_one_node_and_its_job_on_another_find_each_other(
    monkeypatch: pytest.MonkeyPatch, stores: list[MariaStore]
) -> None:
    queue = stores[0].queue("shop", "orders", "shop_orders")
    assert race_of_an_answer(monkeypatch, stores[0], stores[1], queue).met


def test_a_lease_is_renewed_on_one_node_or_ended_on_another(stores: list[MariaStore]) -> None:
    """Never both: else the jobs of an engine that lives would run twice."""
    first, second, _ = stores
    queue = first.queue("shop", "orders", "shop_orders")
    second.queues()
    engine = first.take_lease(0.5, "engine")
    add(first, [new(queue.number)])
    (row,) = claim(first, engine, queue.number)
    seen(second, queue, row.id, row.token)
    with first._using() as conn:
        conn.run("BEGIN")
        assert conn.run(
            f"UPDATE hipq_engines SET lease_until = lease_until + 600000000 WHERE engine_id = {engine}"
        ).rowcount
        time.sleep(0.6)  # there is no other clock than the servers' own
        assert [one.id for one in second.owned([queue.number], None)] == [row.id]
        with pytest.raises(pymysql.OperationalError, match="1213"):
            conn.run("COMMIT")
    assert first.renew_lease(engine, 60) is None


def test_a_node_is_killed_and_another_stopped(nodes: list[Node], urls: list[str], tmp_path: Path) -> None:
    with ExitStack() as stack:
        apps = [make_timed(url, tmp_path) for url in urls]
        for app in apps:
            stack.callback(app.close)
        apps[0].migrate()
        apps[0].queues[0].enqueue("work", "first")  # which makes the tables
        apps[0].queues[1].enqueue("asks", "first", key="first")
        apps[0].answer("answered", "asks", "first", "first")
        workers = stack.enter_context(Workers(urls[0], tmp_path, 0, lease=LEASE, which="timed"))
        for url in urls:
            workers.start(url)
        eventually(lambda: runs_of(tmp_path), 60, "the first job runs")
        adding = [Adding(app, number) for number, app in enumerate(apps)]
        for one in adding:
            stack.callback(one.over.set)
        time.sleep(5)
        nodes[2].kill()
        time.sleep(5)
        nodes[2].start()
        time.sleep(2)
        nodes[1].freeze()
        time.sleep(8)
        nodes[1].thaw()
        time.sleep(3)  # it does not know yet that it is out
        nodes[1].joined()
        time.sleep(2)
        for one in adding:
            one.end()
        keys = {"first", *(key for one in adding for key in one.keys)}
        work: list[Row] = []
        asks: list[Row] = []

        def all_ended() -> bool:
            work[:], asks[:] = (everything(apps[0].store, queue.number) for queue in apps[0].queues)
            return all(row.state == "final" for row in work + asks)

        eventually(all_ended, 180, "every job has ended")
        assert all(process.poll() is None for process in workers.processes), "a worker gave up"
    runs = runs_of(tmp_path)
    print(f"{len(keys)} keys, {len(runs)} runs, {[one.failed for one in adding]} calls tried again")
    assert {row.code for row in work + asks} == {"ok"}
    assert {msgspec.json.decode(row.result) for row in work} == keys, "a job was lost"
    assert {msgspec.json.decode(row.result) for row in asks} == keys, "an answer was lost"
    assert [job for job, count in Counter(job for job, _, _ in runs).items() if count > 1] == [], "ran twice"
    assert {job for job, _, _ in runs} == {row.id for row in work}
    assert most_at_once(runs) == TIMED_LIMIT
    assert all(one.failed for one in adding[1:]), "nobody noticed anything"
