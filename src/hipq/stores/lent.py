"""`conn=`: the connection of a user's own transaction, whatever library it is of."""

from __future__ import annotations

from typing import Any

from hipq.errors import Invalid, shown


def driver_connection(conn: Any) -> Any:
    """The connection of psycopg or sqlite3 that is inside one of SQLAlchemy or Django, or inside a session."""
    library = _library(conn)
    if library == "django":
        conn.ensure_connection()
        return conn.connection
    if library == "sqlalchemy":
        if hasattr(conn, "run_sync"):  # an AsyncSession or an AsyncConnection
            raise Invalid(f"conn is async ({_kind(conn)}): write `await job_type.aenqueue(..., conn=conn)`")
        return _inside(conn)
    if library == "asyncpg" or _kind(conn) == "psycopg.AsyncConnection":
        raise Invalid(f"conn is async ({_kind(conn)}): write `await job_type.aenqueue(..., conn=conn)`")
    return conn


async def async_connection(conn: Any) -> Any:
    """The connection of psycopg or asyncpg that `conn` is or that is inside it, if that is async; else None."""
    if _library(conn) == "sqlalchemy" and hasattr(conn, "run_sync"):
        held = await conn.connection() if hasattr(conn, "get_bind") else conn
        conn = (await held.get_raw_connection()).driver_connection
        if _library(conn) == "asyncpg" and not conn.is_in_transaction():
            await held.exec_driver_sql("SELECT 1")  # SQLAlchemy begins its transaction with its own first statement
    if _library(conn) == "aiosqlite":
        raise Invalid(
            "conn is a connection of aiosqlite, whose transaction nobody else can be part of: on SQLite use sqlite3, "
            "or a plain Session of SQLAlchemy, in a thread, with `enqueue(..., conn=...)`"
        )
    return conn if _library(conn) == "asyncpg" or _kind(conn) == "psycopg.AsyncConnection" else None


def _inside(conn: Any) -> Any:
    if hasattr(conn, "driver_connection"):  # `engine.raw_connection()`, or the `connection` of a Connection
        return conn.driver_connection
    try:
        held = conn.connection() if callable(conn.connection) else conn  # a session's, or the connection itself
        return held.connection.driver_connection
    except AttributeError:
        raise Invalid(f"conn must be a connection or a session of SQLAlchemy, not {shown(conn)}") from None


def _library(conn: Any) -> str:
    return type(conn).__module__.partition(".")[0]


def _kind(conn: Any) -> str:
    return next(
        (f"{_library(conn)}.{kind.__name__}" for kind in type(conn).__mro__ if kind.__name__ == "AsyncConnection"),
        f"{_library(conn)}.{type(conn).__name__}",
    )
