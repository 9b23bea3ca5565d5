"""`hipq restored`, on every store: after a restore from a backup nothing is given out twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq, Job
from hipq.daemon.ids import KIND, Ids
from hipq.job.model import sequence_of
from hipq.stores.migrations import QUEUES_LOST
from hipq.stores.protocols import Store
from tests import processes
from tests.databases import STORES
from tests.mariadb_server import admin, dumped, fresh_maria, load
from tests.servers import fresh_database

Restore = Callable[[], None]


def hipq(*arguments: str) -> subprocess.CompletedProcess[str]:
    return processes.run([sys.executable, "-m", "hipq", *arguments], capture_output=True, text=True, timeout=120)


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[[], Restore]]]:
    """A database, and what makes a backup of it and gives what restores that; nobody has it open then."""
    if request.param == "sqlite":
        file = tmp_path / "shop.db"

        def copy() -> Restore:
            shutil.copy(file, tmp_path / "backup.db")
            return lambda: os.replace(tmp_path / "backup.db", file)

        yield f"sqlite:///{file}", copy
    elif request.param == "mariadb":
        with fresh_maria() as url:

            def dump() -> Restore:
                backup = dumped(url)

                def restore() -> None:
                    with admin(url) as conn:
                        name = url.rpartition("/")[2]
                        conn.cursor().execute(f"DROP DATABASE {name}")
                        conn.cursor().execute(f"CREATE DATABASE {name}")
                    load(url, backup)

                return restore

            yield url, dump
    else:
        import psycopg

        with fresh_database() as url, fresh_database() as beside:
            name, other = url.rpartition("/")[2], beside.rpartition("/")[2]

            def recreate(into: str, template: str) -> None:
                with psycopg.connect(f"{url.rpartition('/')[0]}/postgres", autocommit=True) as conn:
                    conn.execute(f'DROP DATABASE "{into}"'.encode())
                    conn.execute(f'CREATE DATABASE "{into}" TEMPLATE "{template}"'.encode())

            def copy() -> Restore:
                recreate(other, name)
                return lambda: recreate(name, other)

            yield url, copy


def adds(url: str, count: int) -> tuple[list[int], int, int, int]:
    """What a program is told: ids of jobs, the engine_id of an engine, the id of an answer, one of a daemon's ids."""
    app = Hipq("shop", url)
    app.migrate()
    queue = app.queue("orders")
    ids = queue.enqueue_many("work", range(count))
    store: Store = app.store
    engine_id = store.take_lease(60, "a machine")
    store.renew_lease(engine_id, 0)
    app.answer("orders", "work", "nobody", {"n": count})
    answer = max(one.id for one in app.answers.list("orders"))
    daemon = Ids(store, queue.number)
    daemon.reserve()
    first = daemon.take("acme", 1)
    app.close()
    return [*ids], engine_id, answer, first


def test_nothing_is_given_out_twice(place: tuple[str, Callable[[], Restore]]) -> None:
    url, copy = place
    adds(url, 5)
    restore = copy()
    lost = adds(url, 50)
    restore()
    said = hipq("restored", "--db", url, "--yes")
    assert (said.returncode, said.stdout) == (0, "left out 1,000,000 ids of shop.orders\n"), said.stderr
    again = adds(url, 50)
    assert set(again[0]) & set(lost[0]) == set()
    assert min(map(sequence_of, again[0])) > 1_000_000
    assert all(new > old for new, old in zip(again[1:], lost[1:], strict=True)), (again[1:], lost[1:])


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_without_it_ids_come_again(place: tuple[str, Callable[[], Restore]]) -> None:
    """On MariaDB after a thousand: a dump has the first number of a sequence that is not in its cache."""
    url, copy = place
    adds(url, 5)
    restore = copy()
    lost = adds(url, 50)
    restore()
    assert set(adds(url, 50)[0]) & set(lost[0])


def test_what_ran_runs_again_under_another_token_and_new_queues_get_other_numbers(
    place: tuple[str, Callable[[], Restore]],
) -> None:
    url, _ = place
    app = Hipq("shop", url)
    app.migrate()
    ran: list[Any] = []

    @app.queue("orders").job
    def work(job: Job[Any]) -> None:
        ran.append(job.data)

    job_id = work.enqueue("once")
    number, before = app.queues[0].number, app.job(job_id)._row
    alive = app.store.take_lease(60, "a machine")
    refused = hipq("restored", "--db", url, "--yes")
    assert (refused.returncode, "(a machine) is alive" in refused.stderr) == (1, True)
    app.store.renew_lease(alive, 0)
    app.close()
    assert hipq("restored", "--db", url, "--margin", "500", "--yes", "--json").returncode == 0
    assert app.job(job_id)._row.token == before.token + 500
    assert app.store.queue("shop", "mails", "shop_mails").number > number + QUEUES_LOST
    app.run(until_empty=True)
    assert ran == ["once"]
    assert app.store.notes(KIND) == {}
    app.close()


def test_a_database_without_a_queue_is_refused(tmp_path: Path) -> None:
    Hipq("shop", f"sqlite:///{tmp_path}/a.db").migrate()
    said = hipq("restored", "--db", f"sqlite:///{tmp_path}/a.db", "--yes")
    assert (said.returncode, "no queue is registered" in said.stderr) == (2, True)
