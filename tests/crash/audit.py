"""Limits audited inside the database: what all jobs together hold after every commit that changes it.

The log does not depend on hipq's own locks, or it could not tell that one is missing.

PostgreSQL: a trigger that runs when a row was written sees what was committed before its statement, so of two claims
under way neither sees the other. This one is deferred to the commit, and takes a lock of its own there before it looks:
in READ COMMITTED each statement of its function sees all that was committed up to then, and nobody else who changed
what is held can commit between its look and the end of its transaction. So each entry is exactly what was committed, in
the order of commits.

SQLite: one transaction writes at a time, so a trigger sees all there is. It runs row by row; a turn first gives back
and then takes, so no sum on the way is above both the commit before and the one after.

MariaDB: a trigger sees what was committed before its statement, and none runs at the commit. So these write by how much
a row changes what is held, after they have taken a lock of their own, which lasts until the commit: the changes are in
the order of commits, and their sums are what was held.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import psycopg

from hipq import Hipq

_COLUMNS = """
  coalesce(sum(held), 0),
  coalesce(sum(CASE WHEN lane = 'east' THEN held END), 0),
  coalesce(sum(CASE WHEN lane = 'north' THEN held END), 0),
  coalesce(sum(CASE WHEN lane = 'west' THEN held END), 0),
  coalesce(sum(CASE WHEN job_type = 'urgent' AND state = 'running' THEN 1 END), 0),
  coalesce(sum(CASE WHEN phase = 'waiting' THEN held END), 0)
"""
_POSTGRES = f"""
CREATE TABLE audit (number BIGSERIAL PRIMARY KEY, held BIGINT, east BIGINT, north BIGINT, west BIGINT, urgent BIGINT,
  waiting BIGINT);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(0.005);  -- all is written and nothing committed: without hipq's lock, others would claim meanwhile
  PERFORM pg_advisory_xact_lock(1);
  INSERT INTO audit (held, east, north, west, urgent, waiting) SELECT {_COLUMNS} FROM crash_limited;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER audit_write AFTER UPDATE ON crash_limited DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (OLD.held <> NEW.held) EXECUTE FUNCTION audit();
CREATE CONSTRAINT TRIGGER audit_end AFTER DELETE ON crash_limited DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (OLD.held <> 0) EXECUTE FUNCTION audit();
"""
_SQLITE = (
    "CREATE TABLE audit (number INTEGER PRIMARY KEY, held, east, north, west, urgent, waiting)",
    f"""CREATE TRIGGER audit_write AFTER UPDATE ON crash_limited WHEN OLD.held <> NEW.held BEGIN
      INSERT INTO audit (held, east, north, west, urgent, waiting) SELECT {_COLUMNS} FROM crash_limited; END""",
    f"""CREATE TRIGGER audit_end AFTER DELETE ON crash_limited WHEN OLD.held <> 0 BEGIN
      INSERT INTO audit (held, east, north, west, urgent, waiting) SELECT {_COLUMNS} FROM crash_limited; END""",
)
_CHANGE = """BEGIN
  DECLARE held, urgent, waiting BIGINT;
  SET held = {new_held} - OLD.held, urgent = {new_urgent} - (OLD.job_type = 'urgent' AND OLD.state = 'running'),
    waiting = {new_waiting} - IF(OLD.phase = 'waiting', OLD.held, 0);
  IF held <> 0 OR urgent <> 0 OR waiting <> 0 THEN
    DO SLEEP(0.005);  -- without hipq's lock, others would claim meanwhile
    UPDATE audit_lock SET taken = taken + 1;
    INSERT INTO audit (held, east, north, west, urgent, waiting) VALUES (held, IF(OLD.lane = 'east', held, 0),
      IF(OLD.lane = 'north', held, 0), IF(OLD.lane = 'west', held, 0), urgent, waiting);
  END IF;
END"""
_NEW = {
    "new_held": "NEW.held", "new_urgent": "(NEW.job_type = 'urgent' AND NEW.state = 'running')",
    "new_waiting": "IF(NEW.phase = 'waiting', NEW.held, 0)",
}  # fmt: skip
_MARIADB = (
    "CREATE TABLE audit (number BIGINT AUTO_INCREMENT PRIMARY KEY, held BIGINT, east BIGINT, north BIGINT, "
    "west BIGINT, urgent BIGINT, waiting BIGINT)",
    "CREATE TABLE audit_lock (taken BIGINT NOT NULL)",
    "INSERT INTO audit_lock VALUES (0)",
    "CREATE TRIGGER audit_write AFTER UPDATE ON crash_limited FOR EACH ROW " + _CHANGE.format(**_NEW),
    "CREATE TRIGGER audit_end AFTER DELETE ON crash_limited FOR EACH ROW " + _CHANGE.format(**dict.fromkeys(_NEW, "0")),
)
_READ = "SELECT held, east, north, west, urgent, waiting FROM audit ORDER BY number"


class Held(NamedTuple):
    """What a commit left: thousandths of units, in all and by lane; urgent jobs that run; what jobs that wait have."""

    all: int
    east: int
    north: int
    west: int
    urgent: int
    waiting: int


def begin(app: Hipq) -> None:
    if app.url.startswith("postgres"):
        with psycopg.connect(app.url) as conn:
            conn.execute(_POSTGRES.encode())
    elif app.url.startswith("mariadb"):
        with _of_mariadb(app) as conn:
            for statement in _MARIADB:
                conn.run(statement)
    else:
        store: Any = app.store
        with store._db.writing() as conn:
            for statement in _SQLITE:
                conn.execute(statement)


def log(app: Hipq) -> list[Held]:
    if app.url.startswith("postgres"):
        with psycopg.connect(app.url) as conn:
            return [Held(*map(int, row)) for row in conn.execute(_READ.encode()).fetchall()]
    if app.url.startswith("mariadb"):
        with _of_mariadb(app) as conn:
            changes = conn.run(_READ).fetchall()
        sums = accumulate(changes, lambda before, change: tuple(a + b for a, b in zip(before, change, strict=True)))
        return [Held(*row) for row in sums]
    store: Any = app.store
    with store._db.reading() as conn:
        return [Held(*row) for row in conn.execute(_READ).fetchall()]


@contextmanager
def _of_mariadb(app: Hipq) -> Iterator[Any]:
    store: Any = app.store
    with store._db.using() as conn:
        yield conn
