"""Limits audited inside the database: what all jobs together hold after every commit that changes it.

The log does not depend on hipq's own locks, or it could not tell that one is missing.

PostgreSQL: a trigger that runs when a row was written sees what was committed before its statement, so of two claims
under way neither sees the other. This one is deferred to the commit, and takes a lock of its own there before it looks:
in READ COMMITTED each statement of its function sees all that was committed up to then, and nobody else who changed
what is held can commit between its look and the end of its transaction. So each entry is exactly what was committed, in
the order of commits.

SQLite: one transaction writes at a time, so a trigger sees all there is. It runs row by row; a turn first gives back
and then takes, so no sum on the way is above both the commit before and the one after.
"""

from __future__ import annotations

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
    else:
        store: Any = app.store
        with store._db.writing() as conn:
            for statement in _SQLITE:
                conn.execute(statement)


def log(app: Hipq) -> list[Held]:
    if app.url.startswith("postgres"):
        with psycopg.connect(app.url) as conn:
            return [Held(*map(int, row)) for row in conn.execute(_READ.encode()).fetchall()]
    store: Any = app.store
    with store._db.reading() as conn:
        return [Held(*row) for row in conn.execute(_READ).fetchall()]
