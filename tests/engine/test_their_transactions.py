"""`conn=`: jobs that are added in the transaction of a user's own connection, of every kind there is on a store. They
are there if the user commits, and not if the user rolls back; a key that is taken does not undo what the user did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from hipq import DuplicateKey, Hipq, Invalid, JobType, Queue
from tests.servers import fresh_database
from tests.their_connection import committed

pytestmark = pytest.mark.every_store


class Undo(Exception):
    """Ends a block by a rollback."""


Plain = Callable[[str], AbstractContextManager[Any]]
Async = Callable[[str], AbstractAsyncContextManager[Any]]


def _alchemy(url: str, driver: str = "psycopg") -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://").replace("mariadb://", "mariadb+pymysql://")


@contextmanager
def _own(url: str) -> Iterator[Any]:
    with committed(url) as conn:
        yield conn


@contextmanager
def _connection(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(_alchemy(url))
    with engine.begin() as conn:
        yield conn
    engine.dispose()


@contextmanager
def _raw_connection(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(_alchemy(url))
    with engine.begin() as conn:
        yield conn.connection
    engine.dispose()


@contextmanager
def _session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(_alchemy(url))
    with Session(engine) as session, session.begin():
        yield session
    engine.dispose()


@contextmanager
def _scoped(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(_alchemy(url))
    session = scoped_session(sessionmaker(engine))
    with session.begin():
        yield session
    session.remove()
    engine.dispose()


@contextmanager
def _django(url: str) -> Iterator[Any]:
    from django.conf import settings
    from django.db.utils import ConnectionHandler

    if not settings.configured:
        settings.configure()
    if not url.startswith("sqlite"):
        parts = sqlalchemy.make_url(url)
        pymysql.install_as_MySQLdb()
        kind = "postgresql" if url.startswith("postgres") else "mysql"
        where = {
            "ENGINE": f"django.db.backends.{kind}", "NAME": parts.database, "USER": parts.username,
            "HOST": parts.host, "PORT": parts.port,
        }  # fmt: skip
    else:
        where = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    connection = ConnectionHandler({"default": where})["default"]
    connection.ensure_connection()
    connection.set_autocommit(False)
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.close()


@asynccontextmanager
async def _psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as conn:
        yield conn


@asynccontextmanager
async def _psycopg_that_commits(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn, conn.transaction():
        yield conn


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(url)
    async with conn.transaction():
        yield conn
    await conn.close()


@asynccontextmanager
async def _asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as conn, conn.transaction():
        yield conn


def _async_session(driver: str) -> Async:
    @asynccontextmanager
    async def session(url: str) -> AsyncIterator[Any]:
        engine = create_async_engine(_alchemy(url, driver))
        async with AsyncSession(engine) as found, found.begin():
            yield found
        await engine.dispose()

    return session


@asynccontextmanager
async def _async_connection(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(_alchemy(url, "asyncpg"))
    async with engine.begin() as conn:
        yield conn
    await engine.dispose()


PLAIN: dict[str, Plain] = {
    "driver": _own, "connection": _connection, "session": _session, "scoped session": _scoped, "django": _django,
    "raw connection": _raw_connection,
}  # fmt: skip
ASYNC: dict[str, Async] = {
    "psycopg": _psycopg, "psycopg autocommit": _psycopg_that_commits, "asyncpg": _asyncpg, "pool": _asyncpg_pool,
    "session over asyncpg": _async_session("asyncpg"), "session over psycopg": _async_session("psycopg"),
    "connection over asyncpg": _async_connection,
}  # fmt: skip


@pytest.fixture
def work(app: Hipq, queue: Queue) -> JobType:
    found: JobType = queue.job("work")(lambda _: None)
    app.run(until_empty=True)
    return found


def _keys(app: Hipq) -> list[str]:
    return sorted(job.key for job in app.jobs("orders"))


@pytest.mark.parametrize("kind", PLAIN)
def test_they_are_there_if_the_user_commits(app: Hipq, work: JobType, url: str, kind: str) -> None:
    with PLAIN[kind](url) as conn:
        first = work.enqueue({"n": 1}, key="a", conn=conn)
        work.enqueue_many([1, 2, 3], keys=["b", "c", "d"], conn=conn)
        with pytest.raises(DuplicateKey):
            work.enqueue({"n": 2}, key="a", conn=conn)
        assert work.enqueue({"n": 2}, key="a", conn=conn, on_duplicate="return") == first
        assert _keys(app) == []
    assert _keys(app) == ["a", "b", "c", "d"]
    app.run(until_empty=True)
    assert first.status == "final"


@pytest.mark.parametrize("kind", PLAIN)
def test_and_not_if_the_user_rolls_back(app: Hipq, work: JobType, url: str, kind: str) -> None:
    def undone() -> None:
        with PLAIN[kind](url) as conn:
            work.enqueue({"n": 1}, key="a", conn=conn)
            work.enqueue_many([1, 2], conn=conn)
            raise Undo

    with pytest.raises(Undo):
        undone()
    assert _keys(app) == []


@pytest.mark.parametrize(
    "kind", [kind for kind in PLAIN if kind != "django"]
)  # Django refuses to be used from async code
def test_async_code_may_have_a_plain_connection(app: Hipq, work: JobType, url: str, kind: str) -> None:
    async def main(undo: bool) -> None:
        with PLAIN[kind](url) as conn:
            await work.aenqueue({"n": 1}, key="a", conn=conn)
            await work.aenqueue_many([1], keys=["b"], conn=conn)
            if undo:
                raise Undo

    with pytest.raises(Undo):
        asyncio.run(main(undo=True))
    assert _keys(app) == []
    asyncio.run(main(undo=False))
    assert _keys(app) == ["a", "b"]


@pytest.mark.parametrize("store_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", ASYNC)
def test_async_connections_too(app: Hipq, work: JobType, url: str, kind: str) -> None:
    large = {"text": "x" * 100_000}

    async def main(undo: bool) -> None:
        async with ASYNC[kind](url) as conn:
            first = await work.aenqueue(large, key="a", conn=conn)
            await work.aenqueue_many([1, 2, 3], keys=["b", "c", "100 %s"], conn=conn)
            with pytest.raises(DuplicateKey):
                await work.aenqueue({"n": 2}, key="a", conn=conn)
            assert await work.aenqueue({"n": 2}, key="a", conn=conn, on_duplicate="return") == first
            assert _keys(app) == []
            if undo:
                raise Undo

    with pytest.raises(Undo):
        asyncio.run(main(undo=True))
    assert _keys(app) == []
    asyncio.run(main(undo=False))
    assert _keys(app) == ["100 %s", "a", "b", "c"]
    assert next(job.data for job in app.jobs("orders", key="a")) == large
    app.run(until_empty=True)
    assert {job.state for job in app.jobs("orders")} == {"final"}


@pytest.mark.parametrize("store_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_connection_to_another_database_is_refused(app: Hipq, work: JobType, kind: str) -> None:
    async def main(other: str) -> None:
        async with ASYNC[kind](other) as conn:
            await work.aenqueue(1, conn=conn)

    with fresh_database() as other, pytest.raises(Invalid, match="conn is open on the database"):
        asyncio.run(main(other))
    assert _keys(app) == []


@pytest.mark.parametrize("store_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_connection_needs_the_async_verb(work: JobType, url: str, kind: str) -> None:
    async def main() -> None:
        async with ASYNC[kind](url) as conn:
            work.enqueue(1, conn=conn)

    with pytest.raises(Invalid, match=r"conn is async \(\w+\.\w+\): write `await job_type\.aenqueue"):
        asyncio.run(main())


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
def test_what_cannot_be_part_of_it_says_so(work: JobType, url: str) -> None:
    async def main() -> None:
        engine = create_async_engine(url.replace("sqlite", "sqlite+aiosqlite"))
        async with AsyncSession(engine) as session:
            with pytest.raises(Invalid, match=r"aiosqlite.*use sqlite3, or a plain Session"):
                await work.aenqueue(1, conn=session)
        await engine.dispose()

    asyncio.run(main())
    for wrong in (sqlalchemy.create_engine(url), object(), "sqlite"):
        with pytest.raises(Invalid, match="conn must be a connection"):
            work.enqueue(1, conn=wrong)
