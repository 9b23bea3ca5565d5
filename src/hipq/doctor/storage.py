"""Disk space, free pages, dead rows, and what keeps the database from removing them."""

from __future__ import annotations

from typing import Final

from hipq.doctor.finding import NOTE, OK, PROBLEM, WARNING, Finding, View
from hipq.doctor.words import lasting, size
from hipq.stores.health.facts import Health, Holdback, TableHealth

CHECK: Final = "storage"
MANY_DEAD: Final = 10_000
"""Dead rows of a table that are worth a note, if they are more than DEAD_PART of the living ones."""
DEAD_PART: Final = 0.2
VACUUMED: Final = 600.0
"""Seconds without a vacuum after which dead rows are worth a note: a busy queue has many between two vacuums."""
EMPTY_SIZE: Final = 64_000_000
"""Bytes of a table that are worth a note, if they are more than EMPTY_ROW for each row."""
EMPTY_ROW: Final = 16_000
SLOT_SIZE: Final = 1_000_000_000
"""Bytes of log that an idle replication slot may keep."""
OPEN: Final = 10.0
"""Seconds that a transaction may be open in any case: a busy engine always has one."""


def server_storage(health: Health, view: View) -> list[Finding]:
    if health.server is None:
        return []
    found = [*_settings(health.server.settings)]
    found += [finding for table in health.tables for finding in _table(table, _queue_of(health, table.table))]
    found += [finding for holdback in health.holdbacks for finding in _holdback(holdback, view)]
    if found or not health.tables:
        return found
    total = sum(table.size for table in health.tables)
    return [Finding(CHECK, OK, f"hipq's tables have {size(total)}, few of their rows are dead, and nobody keeps those")]


def _settings(settings: dict[str, str]) -> list[Finding]:
    off = [name for name in ("autovacuum", "track_counts") if settings.get(name) == "off"]
    if not off:
        return []
    sentence = f"{' and '.join(off)} off: nobody removes dead rows, and queues make many"
    return [Finding(CHECK, PROBLEM, sentence, "turn that on in the server's settings", facts=settings)]


def _table(table: TableHealth, queue: str) -> list[Finding]:
    found = []
    facts = table._asdict()
    if not table.autovacuum:
        sql = f"ALTER TABLE {table.table} RESET (autovacuum_enabled)"
        sentence = f"autovacuum is off for table {table.table}: its dead rows stay for ever"
        found.append(Finding(CHECK, WARNING, sentence, f"run this SQL: {sql}", queue, facts | {"sql": [sql]}))
    is_old = table.vacuumed is None or table.vacuumed > VACUUMED
    if is_old and table.dead >= MANY_DEAD and table.dead > DEAD_PART * table.live:
        when = (
            "it was never vacuumed" if table.vacuumed is None else f"its last vacuum was {lasting(table.vacuumed)} ago"
        )
        sentence = f"table {table.table} has {table.dead:,} dead rows beside {table.live:,} others, and {when}"
        sql = f"VACUUM (ANALYZE) {table.table}"
        advice = f"see what else this check says keeps them; then run this SQL: {sql}"
        found.append(Finding(CHECK, WARNING, sentence, advice, queue, facts | {"sql": [sql]}))
    elif not is_old and table.size > EMPTY_SIZE and table.size > EMPTY_ROW * max(table.live, 1):
        sql = f"VACUUM FULL {table.table}"
        sentence = f"table {table.table} has {size(table.size)} for {table.live:,} rows: most of that is empty"
        advice = f"nothing, if it fills again; else stop the workers and run this SQL: {sql}"
        found.append(Finding(CHECK, NOTE, sentence, advice, queue, facts | {"sql": [sql]}))
    return found


def _holdback(one: Holdback, view: View) -> list[Finding]:
    facts = one._asdict()
    if one.kind == "slot":
        return _slot(one, facts)
    if one.age is None or one.age < max(view.patience, OPEN):
        return []
    keeps = "while it is open no dead row is removed that is younger, and queues get slower"
    if one.kind == "prepared":
        sentence = f"the prepared transaction {one.name} ({one.who}) has waited for {lasting(one.age)}: {keeps}"
        sql = "ROLLBACK PREPARED '" + one.name.replace("'", "''") + "'"
        return [Finding(CHECK, WARNING, sentence, f"ask who prepared it; or run this SQL: {sql}",
                        facts=facts | {"sql": [sql]})]  # fmt: skip
    sentence = f"a transaction has been open for {lasting(one.age)} (pid {one.name}: {one.who}): {keeps}"
    sql = f"SELECT pg_terminate_backend({one.name})"
    advice = f"end that program's transaction; or run this SQL: {sql}"
    return [Finding(CHECK, WARNING, sentence, advice, facts=facts | {"sql": [sql]})]


def _slot(one: Holdback, facts: dict[str, object]) -> list[Finding]:
    """Replication slots that nobody reads from: they keep all log since."""
    if one.active or (one.log_size < SLOT_SIZE and not one.transactions):
        return []
    sentence = (
        f"nobody reads from the replication slot {one.name} ({one.who}): it keeps {size(one.log_size)} of log, "
        f"and dead rows of the last {one.transactions:,} transactions"
    )
    sql = "SELECT pg_drop_replication_slot('" + one.name.replace("'", "''") + "')"
    advice = f"start what reads from it; or, if that is gone for good, run this SQL: {sql}"
    return [Finding(CHECK, WARNING, sentence, advice, facts=facts | {"sql": [sql]})]


def _queue_of(health: Health, table: str) -> str:
    for queue in health.queues:
        if table in (queue.tables.table, f"{queue.tables.table}_final"):
            return queue.name
    return ""
