"""Whether the tables, indexes and checks that the migrations create exist, whole, and on the right table."""

from __future__ import annotations

from typing import Final

from hipq.doctor.finding import OK, PROBLEM, WARNING, Finding, View
from hipq.stores.health.facts import POSTGRESQL, SQLITE, Health, Part

CHECK: Final = "indexes"


def indexes(health: Health, _view: View) -> list[Finding]:
    if health.level is None or not health.expected or any(one.check == CHECK for one in health.unread):
        return []
    if health.level.found > health.level.mine:
        return []  # later migrations may have changed any of it
    there = {part.name: part for part in health.found}
    lost = {part.name for part in health.expected if part.kind == "table" and part.name not in there}
    found = [_missing_table(health, name) for name in sorted(lost)]
    for wanted in health.expected:
        if wanted.kind != "table" and wanted.table not in lost:
            found += _compared(health, wanted, there.get(wanted.name))
    found += _leftovers(health)
    if found:
        return found
    return [Finding(CHECK, OK, f"all {len(health.expected)} tables, indexes and checks are as they should be")]


def _missing_table(health: Health, table: str) -> Finding:
    advice = "restore the database from a backup; a table does not vanish by anything hipq does"
    facts = {"table": table}
    return Finding(CHECK, PROBLEM, f"table {table} is missing", advice, _queue_of(health, table), facts)


def _compared(health: Health, wanted: Part, there: Part | None) -> list[Finding]:
    queue = _queue_of(health, wanted.table)
    facts = {wanted.kind: wanted.name, "table": wanted.table}
    if wanted.kind == "check":
        if there is None:
            sentence = f"the check {wanted.name} of table {wanted.table} is missing: any row may come in"
            sql = [f"ALTER TABLE {wanted.table} ADD {wanted.sql}"]
            advice = _sql_advice(health, sql)
            if health.kind == SQLITE:
                advice = "take the jobs to a new database (`hipq move`): SQLite cannot add a check to a table"
            return [Finding(CHECK, WARNING, sentence, advice, queue, facts | {"sql": sql})]
        if not there.valid:
            sql = [f"ALTER TABLE {wanted.table} VALIDATE CONSTRAINT {wanted.name}"]
            sentence = f"the check {wanted.name} of table {wanted.table} is not valid for all rows"
            return [Finding(CHECK, WARNING, sentence, _sql_advice(health, sql), queue, facts | {"sql": sql})]
        return []
    if there is None:
        sql = [_create(health, wanted)]
        sentence = f"index {wanted.name} of table {wanted.table} is missing: {_cost(wanted)}"
    elif there.table != wanted.table:
        sql = [f"DROP INDEX {wanted.name}", _create(health, wanted)]
        sentence = f"index {wanted.name} is on table {there.table}, not on {wanted.table}: {_cost(wanted)}"
    elif _shape(there) != _shape(wanted):
        sql = [f"DROP INDEX {wanted.name}", _create(health, wanted)]
        sentence = f"index {wanted.name} of table {wanted.table} is not what hipq makes: {_cost(wanted)}"
    elif not there.valid:
        sql = [f"REINDEX INDEX CONCURRENTLY {wanted.name}"]
        sentence = f"index {wanted.name} of table {wanted.table} is invalid, so nothing uses it: {_cost(wanted)}"
    else:
        return []
    return [Finding(CHECK, PROBLEM, sentence, _sql_advice(health, sql), queue, facts | {"sql": sql})]


def _leftovers(health: Health) -> list[Finding]:
    """Indexes whose concurrent build was given up."""
    wanted = {part.name for part in health.expected}
    found = []
    for part in health.found:
        if part.kind == "index" and not part.valid and part.name not in wanted:
            sql = [f"DROP INDEX CONCURRENTLY {part.name}"]
            sentence = f"index {part.name} of table {part.table} is invalid and none of hipq's: every write pays for it"
            facts = {"index": part.name, "table": part.table, "sql": sql}
            found.append(
                Finding(CHECK, WARNING, sentence, _sql_advice(health, sql), _queue_of(health, part.table), facts)
            )
    return found


def _shape(part: Part) -> tuple[tuple[str, ...], bool, bool]:
    return part.columns, part.unique, part.partial


def _cost(index: Part) -> str:
    return "two jobs may get the same key" if index.unique else "statements read all of the table instead"


def _create(health: Health, wanted: Part) -> str:
    sql = wanted.sql.rstrip(";")
    return sql.replace("INDEX", "INDEX CONCURRENTLY", 1) if health.kind == POSTGRESQL else sql


def _sql_advice(health: Health, sql: list[str]) -> str:
    where = "stop the workers and run this SQL" if health.kind == SQLITE else "run this SQL, each statement by itself"
    return f"{where}: {'; '.join(sql)}"


def _queue_of(health: Health, table: str) -> str:
    for queue in health.queues:
        if table in (queue.tables.table, f"{queue.tables.table}_final"):
            return queue.name
    return ""
