"""Bugs somebody could write, as replacements in the source. The simulation must catch every one of them."""

from __future__ import annotations

from tests.planted.answers import ANSWER_BUGS
from tests.planted.bug import Bug
from tests.planted.counters import COUNTER_BUGS
from tests.planted.handlers import HANDLER_BUGS
from tests.planted.lanes import LANE_BUGS
from tests.planted.mariadb import MARIADB_BUGS
from tests.planted.rules import RULE_BUGS

SQLITE = "stores/sqlite/store.py"
SETTLE = "stores/sql/settle.py"


BUGS = (
    Bug(
        "no token check",
        "I8",
        (
            (
                SETTLE,
                "tokens = self._tokens(conn, queue, [change.before.id for change in some])",
                "tokens = {change.before.id: change.before.token for change in some}",
            ),
            ("stores/sqlite/sql/finish.sql", "AND l.token = done.token", ""),
            ("stores/sqlite/sql/update.sql", "AND {live}.token = moved.token", ""),
        ),
    ),
    Bug(
        "settle after forgetting",
        "I1|I5",
        (
            (
                "engine/turn.py",
                "            saved = self._save(changes, claims, now)\n"
                "            self._batch.forget_stopped()",
                "            self._batch.forget_stopped()\n"
                "            saved = self._save(changes, claims, now)",
            ),
        ),
    ),
    Bug(
        "rescue by age",
        "I7|I13",  # which asks the same statement who is dead
        (
            (
                "stores/sqlite/sql/orphans.sql",
                "AND NOT EXISTS (\n  SELECT 1 FROM hipq_engines e "
                "WHERE e.engine_id = l.owner AND e.lease_until > :steady AND e.boot = :boot\n)",
                "AND update_time < (SELECT max(update_time) FROM {live}) - 5000000 AND :steady > 0 AND :boot <> '?'",
            ),
        ),
    ),
    Bug(
        "acknowledge before the commit",
        "I1",
        (
            (
                SQLITE,
                "        with self._db.writing() as own:\n"
                "            stored = self._insert.many(own, jobs, all_or_nothing)\n",
                "        try:\n            with self._db.writing() as own:\n"
                "                stored = self._insert.many(own, jobs, all_or_nothing)\n"
                "        except StoreError:\n            pass\n",
            ),
            (
                SQLITE,
                "from hipq.errors import StoreUnavailable\n",
                "from hipq.errors import StoreError, StoreUnavailable\n",
            ),
        ),
    ),
    Bug(
        "claim without a lease",
        "I7",
        ((SQLITE, "if claims and self._alive(sql, engine_id):", "if claims:"),),
    ),
    Bug(
        "an expired lease is renewed",
        "I7",
        (
            ("stores/sqlite/sql/renew_lease.sql", "AND lease_until > :steady AND", "AND"),
        ),
    ),
    Bug(
        "suspects are not run apart",
        "I13",
        (("job/transitions.py", "RESCUED), crashes=max(row.crashes, SUSPECT))", "RESCUED), crashes=0)"),),
    ),
    Bug(
        "own rows that are not in memory are kept",
        "I1",
        (("engine/rescue.py", "        if job_id not in in_flight\n", "        if False\n"),),
    ),
    Bug(
        "a run again from memory",
        "I5|throttler",
        (
            (
                "engine/turn.py",
                "            self._launch(saved, now)\n",
                "            saved.turned.won.extend(one.before for one in saved.changes if one.event == 'again')\n"
                "            self._launch(saved, now)\n",
            ),
        ),
    ),
    Bug(
        "children without their parent",
        "I2",
        (
            (
                "stores/sql/settle.py",
                "children = [child for change in saved for child in change.children]",
                "children = [child for change in first.values() for child in change.children]",
            ),
        ),
    ),
    Bug(
        "a staged job starts early",
        "I10",
        (("stores/sqlite/sql/stage.sql", "scheduled_run_time <= :now", "scheduled_run_time <= :now + 3000000"),
         ("stores/sqlite/sql/pick_ready.sql", " AND scheduled_run_time <= ?", " AND ? > 0")),
    ),
    *RULE_BUGS,
    *LANE_BUGS,
    *HANDLER_BUGS,
    *ANSWER_BUGS,
    *COUNTER_BUGS,
    *MARIADB_BUGS,
)  # fmt: skip
