"""A statement that the database does not understand is a defect of hipq's, and no outage, which would pass."""

from __future__ import annotations

import sqlite3

import psycopg
import pymysql
import pytest

from hipq.daemon.http.reply import refusal
from hipq.errors import StoreDefect, StoreError, StoreUnavailable
from hipq.stores.mariadb import connection as mariadb
from hipq.stores.mariadb.address import options_of
from hipq.stores.postgres import connection as postgres
from hipq.stores.sqlite import connection as sqlite
from tests.mariadb_server import fresh_maria
from tests.servers import fresh_database

WRONG = "SELECT * FROM WHERE offset offset"
AWAY = "SELECT 1 FROM hipq_of_another_schema"


def of_sqlite(statement: str) -> StoreError:
    with pytest.raises(sqlite3.Error) as error:
        sqlite3.connect(":memory:").execute(statement)
    return sqlite.translated(error.value)


def of_postgres(statement: str) -> StoreError:
    with fresh_database() as url, psycopg.connect(url) as db, pytest.raises(psycopg.Error) as error:
        db.execute(statement.encode())
    return postgres.translated(error.value)


def of_mariadb(statement: str) -> StoreError:
    with fresh_maria() as url:
        db = pymysql.connect(**options_of(url))
        with pytest.raises(pymysql.Error) as error:
            db.cursor().execute(statement)
        db.close()
    return mariadb.translated(error.value)


@pytest.mark.parametrize("translated", [of_sqlite, of_postgres, of_mariadb])
def test_what_the_database_does_not_understand_is_a_defect(translated: object) -> None:
    assert callable(translated)
    found = translated(WRONG)
    assert isinstance(found, StoreDefect)
    assert "a defect of hipq's, and no outage" in str(found)
    assert refusal(found).status == 500, "and the log has it, with its trace"
    missing = translated(AWAY)
    assert isinstance(missing, StoreUnavailable), "somebody may be about to migrate"
    assert not isinstance(missing, StoreDefect)
