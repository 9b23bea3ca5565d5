"""Whether the tables, indexes and checks that the migrations create exist, whole, and on the right table."""

from __future__ import annotations

from collections.abc import Iterator

from hipq.doctor.finding import Finding, View, ok, problem, queue_of, warning
from hipq.stores.health.facts import MARIADB, MYSQL, POSTGRESQL, SQLITE, Health, Part


def indexes(health: Health, _view: View) -> Iterator[Finding]:
    if health.level is None or not health.expected or any(one.check == "indexes" for one in health.unread):
        return
    if health.level.found > health.level.mine:
        return  # later migrations may have changed any of it
    there = {part.name: part for part in health.found}
    lost = {part.name for part in health.expected if part.kind == "table" and part.name not in there}
    for name in sorted(lost):
        advice = "restore the database from a backup; a table does not vanish by anything hipq does"
        yield problem(f"table {name} is missing", advice, queue_of(health, name), {"table": name})
    for wanted in health.expected:
        if wanted.kind != "table" and wanted.table not in lost:
            compared = _compared_check if wanted.kind == "check" else _compared_index
            yield from compared(health, wanted, there.get(wanted.name))
    yield from _leftovers(health)
    yield ok(f"all {len(health.expected)} tables, indexes and checks are as they should be")


def _compared_check(health: Health, wanted: Part, there: Part | None) -> Iterator[Finding]:
    if there is not None and there.valid:
        return
    of = f"the check {wanted.name} of table {wanted.table}"
    if there is not None:
        sentence = f"{of} is not valid for all rows"
        sql = [f"ALTER TABLE {wanted.table} VALIDATE CONSTRAINT {wanted.name}"]
    else:
        sentence, sql = f"{of} is missing: any row may come in", [f"ALTER TABLE {wanted.table} ADD {wanted.sql}"]
    advice = _sql_advice(health, sql)
    if there is None and health.kind == SQLITE:
        advice = "take the jobs to a new database (`hipq move`): SQLite cannot add a check to a table"
    yield warning(sentence, advice, queue_of(health, wanted.table), _facts(wanted, sql))


def _compared_index(health: Health, wanted: Part, there: Part | None) -> Iterator[Finding]:
    create = wanted.sql.rstrip(";")
    if health.kind == POSTGRESQL:
        create = create.replace("INDEX", "INDEX CONCURRENTLY", 1)
    drop = f"DROP INDEX {wanted.name}" + (f" ON {wanted.table}" if health.kind in (MARIADB, MYSQL) else "")
    sql, of = [drop, create], f"index {wanted.name} of table {wanted.table}"
    if there is None:
        sql, sentence = [create], f"{of} is missing"
    elif there.table != wanted.table:
        sentence = f"index {wanted.name} is on table {there.table}, not on {wanted.table}"
    elif (there.columns, there.unique, there.partial) != (wanted.columns, wanted.unique, wanted.partial):
        sentence = f"{of} is not what hipq makes"
    elif not there.valid:
        sql, sentence = [f"REINDEX INDEX CONCURRENTLY {wanted.name}"], f"{of} is invalid, so nothing uses it"
    else:
        return
    cost = "two jobs may get the same key" if wanted.unique else "statements read all of the table instead"
    queue = queue_of(health, wanted.table)
    yield problem(f"{sentence}: {cost}", _sql_advice(health, sql), queue, _facts(wanted, sql))


def _leftovers(health: Health) -> Iterator[Finding]:
    """Indexes whose concurrent build was given up."""
    wanted = {part.name for part in health.expected}
    for part in health.found:
        if part.kind == "index" and not part.valid and part.name not in wanted:
            sql = [f"DROP INDEX CONCURRENTLY {part.name}"]
            sentence = f"index {part.name} of table {part.table} is invalid and none of hipq's: every write pays for it"
            yield warning(sentence, _sql_advice(health, sql), queue_of(health, part.table), _facts(part, sql))


def _facts(part: Part, sql: list[str]) -> dict[str, object]:
    return {part.kind: part.name, "table": part.table, "sql": sql}


def _sql_advice(health: Health, sql: list[str]) -> str:
    where = "stop the workers and run this SQL" if health.kind == SQLITE else "run this SQL, each statement by itself"
    return f"{where}: {'; '.join(sql)}"
