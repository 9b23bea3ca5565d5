"""The database that an application has during a test: it outlives the application's own `close()`."""

from __future__ import annotations

import asyncio
import sqlite3

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from hipq import Hipq, Invalid, Job
from hipq.testing import Harness, harness
from tests.servers import clean_database


def test_jobs_outlive_a_close_of_the_application(app: Hipq, db: str) -> None:
    """The lifespan of a web server, under a test client, ends with `app.close()`."""
    work = app.queue("orders").job("work")(lambda job: job.data)
    with harness(app, db=db) as world:
        work.enqueue(5, key="k")
        app.close()
        assert [run.name for run in world.run_until_idle()] == ["work"]
        app.close()
        world.assert_ok(work, "k", result=5)
    assert app.url.endswith("own.db")


def test_each_test_has_a_schema_of_its_own(app: Hipq) -> None:
    work = app.queue("orders").job("work")(lambda job: job.data)
    with clean_database() as url:
        for _ in range(2):  # nothing is left of the first
            with harness(app, db=url, fresh=True) as world:
                with psycopg.connect(world.db) as conn, conn.transaction():
                    conn.execute("CREATE TABLE orders (id INTEGER)")
                    conn.execute("INSERT INTO orders VALUES (1)")
                    work.enqueue(5, key="k", conn=conn)
                world.run_until_idle()
                world.assert_ok(work, "k", result=5)
        with psycopg.connect(url) as conn:
            query = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'hipq_test%'"
            assert conn.execute(query).fetchone() == (0,)


def test_a_schema_of_its_own_is_for_postgresql(app: Hipq) -> None:
    with pytest.raises(Invalid, match="fresh=True is for PostgreSQL"), harness(app, fresh=True):
        pass


def test_a_connection_to_the_other_kind_of_database_is_named(app: Hipq, shop: Harness) -> None:
    work = app.queue("orders").job("work")(_data)

    async def main(url: str) -> None:
        engine = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"))
        async with AsyncSession(engine) as session, session.begin():
            await work.aenqueue(5, conn=session)

    with clean_database() as url:
        says = r'^conn is open on PostgreSQL, and this app is on SQLite.*hipq_harness\(app, db="postgresql://'
        with psycopg.connect(url) as conn, pytest.raises(Invalid, match=says):
            work.enqueue(5, conn=conn)
        with pytest.raises(Invalid, match=says):
            asyncio.run(main(url))
    shop.assert_not_enqueued(work)
    with clean_database() as url, sqlite3.connect(":memory:") as lite:
        other = Hipq("other", url)
        other.migrate()
        with pytest.raises(Invalid, match="conn is open on SQLite, and this app is on PostgreSQL"):
            other.queue("orders").enqueue("work", 5, conn=lite)
        other.close()


def _data(job: Job[int]) -> int:
    return job.data
