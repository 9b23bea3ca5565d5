"""MariaDB and MySQL: all that differs between them is here. hipq is tested on MariaDB 10.11; on MySQL it is untested,
and what is here for MySQL 8 goes by what its manual says."""

from __future__ import annotations

from typing import Final, NamedTuple

from hipq.errors import SchemaError

OLDEST: Final = {"MariaDB": (10, 6), "MySQL": (8, 0)}
MODES: Final = (
    "ANSI_QUOTES,PIPES_AS_CONCAT,STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)
"""What the texts of our statements rely on, on a user's connection, too."""


class Flavour(NamedTuple):
    name: str
    collation: str
    """Compares texts byte by byte, and trailing spaces matter."""
    settings: str
    """What a session of hipq's own sets, beside its isolation."""
    make_ids: str
    """What a queue's ids are counted by;"""
    drop_ids: str
    """what removes that;"""
    take_ids: str
    """what takes so many of them, each as a row, or only the first of them in the session's LAST_INSERT_ID;"""
    last_id: str
    """what takes one more and says which;"""
    move_ids: str
    """and what moves it on."""
    has_returning: bool
    limited: str
    """What lets no statement of the session take longer than 5 seconds."""
    lock_waits: str
    """A table of who waits for whose locks: its column for the transaction that has them."""
    checks: str
    """What lists the checks of a database, each with its table."""
    prepared: str
    """What lists transactions that were prepared, with a name that a statement takes; "" = nothing does."""


_COMMON: Final = (
    "SET SESSION time_zone = '+00:00', autocommit = 1, lock_wait_timeout = 2, innodb_lock_wait_timeout = 2, "
    f"group_concat_max_len = 1048576, sql_mode = '{MODES}'"
)

MARIADB: Final = Flavour(
    name="MariaDB",
    collation="utf8mb4_nopad_bin",
    # A process that was stopped in mid-turn may hold a queue's admission lock. What EXISTS asks for is looked up, else
    # all of it would be read first. Only what skips through an index goes by the tables of statistics: see the dialect.
    settings=f"{_COMMON}, idle_transaction_timeout = 5, optimizer_use_condition_selectivity = 1, "
    "optimizer_switch = 'exists_to_in=off', use_stat_tables = 'never'",
    # Increments by what Galera gives each of its nodes; elsewhere that is one.
    make_ids="CREATE SEQUENCE {live}_ids MAXVALUE 140737488355327 INCREMENT BY 0 CACHE 1000",
    drop_ids="DROP SEQUENCE IF EXISTS {live}_ids",
    take_ids="SELECT NEXTVAL({live}_ids) FROM seq_1_to_{count}",
    last_id="SELECT NEXTVAL({live}_ids)",
    move_ids="SELECT SETVAL({live}_ids, {to})",
    has_returning=True,
    limited="SET SESSION max_statement_time = 5",
    lock_waits="SELECT blocking_trx_id AS trx FROM information_schema.innodb_lock_waits",
    checks="SELECT constraint_name, table_name FROM information_schema.check_constraints "
    "WHERE constraint_schema = DATABASE()",
    prepared="XA RECOVER FORMAT = 'SQL'",
)
MYSQL: Final = Flavour(
    name="MySQL",
    collation="utf8mb4_0900_bin",
    settings=_COMMON,
    make_ids="CREATE TABLE {live}_ids (id BIGINT AUTO_INCREMENT PRIMARY KEY)",
    drop_ids="DROP TABLE IF EXISTS {live}_ids",
    take_ids="INSERT INTO {live}_ids (id) VALUES {nulls}",
    last_id=(
        "SELECT auto_increment FROM information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name = '{live}_ids'"
    ),
    move_ids="ALTER TABLE {live}_ids AUTO_INCREMENT = {to}",
    has_returning=False,
    limited="SET SESSION max_execution_time = 5000",
    lock_waits="SELECT blocking_engine_transaction_id AS trx FROM performance_schema.data_lock_waits",
    checks="SELECT constraint_name, table_name FROM information_schema.table_constraints "
    "WHERE constraint_type = 'CHECK' AND table_schema = DATABASE()",
    prepared="",
)


def number_of(version: str) -> tuple[int, ...]:
    """Of what the server says of its version."""
    number = version.removeprefix("5.5.5-").split("-", 1)[0].split(".")
    return tuple(int(part) for part in number[:3] if part.isdigit())


def flavour_of(version: str) -> Flavour:
    """By what the server says of its version."""
    flavour = MARIADB if "mariadb" in version.lower() else MYSQL
    if number_of(version)[:2] < OLDEST[flavour.name]:
        raise SchemaError(f"hipq needs MariaDB 10.6 or MySQL 8.0, or later ones; this server is {version[:40]}")
    return flavour
