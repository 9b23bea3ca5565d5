"""Bugs in what MariaDB has in the place of locks that others have."""

from __future__ import annotations

from tests.planted.bug import Bug

LOCKS = "tests/stores/test_mariadb_locks.py"
CUT = "tests/stores/test_mariadb_connection.py::test_sessions_that_the_server_has_cut_are_not_used"
STORE = "stores/mariadb/store.py"
LOCKED = '        return self.read(sql, claim.queue, "FOR UPDATE")\n'

MARIADB_BUGS = (
    Bug(
        "MariaDB: claims under limits share the admission lock",
        "test",
        (("stores/mariadb/rule_claims.py", LOCKED, LOCKED.replace("FOR UPDATE", "LOCK IN SHARE MODE")),),
        f"{LOCKS}::test_two_engines_never_claim_under_a_limit_at_the_same_time",
    ),
    Bug(
        "MariaDB: a claim under limits does not write the row it has locked",
        "test",
        (("stores/mariadb/rule_claims.py", "    writes_claims = True\n", ""),),
        f"{LOCKS}::test_what_is_locked_by_row_is_written",
    ),
    Bug(
        "MariaDB: nobody locks the keys of answers",
        "test",
        ((STORE, "            sql.run(query, {})\n", "            assert query\n"),),
        f"{LOCKS}::test_an_answer_and_its_job_never_look_at_the_same_time",
    ),
    Bug(
        "MariaDB: a conflict at the commit is not begun again",
        "test",
        (
            (
                "stores/mariadb/connection.py",
                "            self.run(undo if force_rollback else end)\n",
                "            with suppress(pymysql.OperationalError):\n"
                "                self.run(undo if force_rollback else end)\n",
            ),
        ),
        f"{LOCKS}::test_a_conflict_at_the_commit_is_begun_again",
    ),
    Bug(
        "MariaDB: sessions that were cut are used",
        "test",
        (("stores/mariadb/connection.py", "return _has_news(conn)", "return not conn.open"),),
        CUT,
    ),
    Bug(
        "MariaDB: a number that was given before is taken for a new one",
        "test",
        (("stores/mariadb/adding.py", " if at == job.create_time), (0, 0))", "), (0, 0))"),),
        "tests/contract/test_mariadb.py::TestMariaDB::test_a_number_that_was_given_before_is_given_to_no_other_job",
    ),
)  # fmt: skip
