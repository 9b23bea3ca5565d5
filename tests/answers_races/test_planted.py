"""A test that no bug can fail proves nothing: each side of each store looks before it has the lock, in a copy of the
source, and the forced races must say so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.planted.bug import Bug
from tests.servers import postgres_url

ROOT: Final = Path(__file__).parents[2]
READ: Final = "        candidates = read_candidates(inbox, _one_of_each_key(left), now, instead_of)\n"

POSTGRES_ANSWER: Final = (
    (
        "stores/sql/answers.py",
        "            self._lock_keys(sql, [*_key_of(sql, instead_of), *(one.whole_key for one in answers)])\n",
        "",
    ),
    (
        "stores/sql/answers.py",
        "            return deliver(inbox, answers, now, instead_of), inbox.changed\n",
        "            keys = [*_key_of(sql, instead_of), *(one.whole_key for one in answers)]\n"
        "            inbox.lock = lambda: self._lock_keys(sql, keys)\n"
        "            return deliver(inbox, answers, now, instead_of), inbox.changed\n",
    ),
    (
        "stores/inbox_transaction.py",
        READ,
        f"{READ}        getattr(inbox, 'lock', int)()\n",
    ),
)
POSTGRES_WAIT: Final = (
    (
        "stores/sql/turn.py",
        "        self._lock_keys(sql, keys_to_lock(changes), changes)\n",
        "",
    ),
    (
        "stores/sql/turn.py",
        "        matched = match_waiting(inbox, changes, now)\n",
        "        matched = match_waiting(inbox, changes, now)\n        self._lock_keys(sql, keys_to_lock(changes))\n",
    ),
)
SQLITE_ANSWER: Final = (
    (
        "stores/sql/answers.py",
        "        if not answers:\n            return []\n",
        "        from hipq.stores.inbox_transaction import read_candidates\n"
        "        with self._reading() as sql:\n"
        "            seen = read_candidates(self._inbox(sql), dict(enumerate(answers)), now)\n",
    ),
    (
        "stores/sql/answers.py",
        "            return deliver(inbox, answers, now, instead_of), inbox.changed\n",
        "            inbox.seen = seen\n            return deliver(inbox, answers, now, instead_of), inbox.changed\n",
    ),
    (
        "stores/inbox_transaction.py",
        READ,
        f"{READ}        candidates = getattr(inbox, 'seen', candidates)\n",
    ),
)
SQLITE_WAIT: Final = (
    (
        "stores/sqlite/store.py",
        "        with self._writing() as sql:\n            turned, _ = self._settled(sql, changes, now)\n",
        "        from hipq.stores.inbox_transaction import match_waiting\n"
        "        with self._reading() as sql:\n"
        "            self.seen = match_waiting(self._inbox(sql), changes, now)\n"
        "        with self._writing() as sql:\n            turned, _ = self._settled(sql, changes, now)\n",
    ),
    (
        "stores/sql/turn.py",
        "        matched = match_waiting(inbox, changes, now)\n",
        "        matched = self.seen\n",
    ),
)
POSTGRES_NO_LOCK: Final = POSTGRES_ANSWER[:1]
POSTGRES_OWN_KEY: Final = (
    (
        "stores/inbox_transaction.py",
        "for key in {*change.before.answer_keys, *row.answer_keys}",
        "for key in {row.job_key}",
    ),
)


class Planted(NamedTuple):
    store: str
    bug: Bug
    caught: tuple[str, ...]
    """What must fail, of the forced races."""


ANSWER: Final = "test_an_answer_that_has_looked_is_met_by_the_wait"
WAIT: Final = "test_a_wait_that_has_looked_is_met_by_the_answer"
ANSWER_16: Final = "test_an_answer_under_either_key_that_has_looked_is_met_by_the_wait"
WAIT_16: Final = "test_a_wait_that_has_looked_is_met_by_an_answer_under_either_key"
ONE_KEY: Final = "test_two_jobs_that_want_one_key_at_once"
BUGS: Final = (
    Planted("sqlite", Bug("an answer looks before it has the lock", "", SQLITE_ANSWER), (ANSWER, ANSWER_16)),
    Planted("sqlite", Bug("a wait looks before it has the lock", "", SQLITE_WAIT), (WAIT, WAIT_16)),
    # On PostgreSQL the row of a job that is found is locked too, which saves the answer; not so under another key.
    Planted("postgres", Bug("an answer looks before it has the lock", "", POSTGRES_ANSWER), (ANSWER_16,)),
    Planted("postgres", Bug("a wait looks before it has the lock", "", POSTGRES_WAIT), (WAIT, WAIT_16)),
    Planted("postgres", Bug("an answer takes no lock", "", POSTGRES_NO_LOCK), (ANSWER_16, WAIT_16)),
    Planted(
        "postgres", Bug("a wait locks only its job's own key", "", POSTGRES_OWN_KEY), (ANSWER_16, WAIT_16, ONE_KEY)
    ),
)


def plant(bug: Bug, target: Path) -> None:
    shutil.copytree(ROOT / "src", target)  # with what is compiled: it is known by time and size
    for name, old, new in bug.edits:
        file = target / "hipq" / name
        text = file.read_text()
        assert text.count(old) == 1, f"{name} has changed: plant this anew:\n{old}"
        file.write_text(text.replace(old, new))


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: f"{planted.store}: {planted.bug.name}")
def test_it_is_caught(planted: Planted, tmp_path: Path) -> None:
    plant(planted.bug, tmp_path / "src")
    which = f"{planted.store} and ({' or '.join(planted.caught)})"
    races = [f"{ROOT}/tests/answers_races/test_races.py", "-k", which]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "HIPQ_RACES_SECONDS": "20"}
    if planted.store == "postgres":
        environment["HIPQ_TEST_POSTGRES_URL"] = postgres_url()  # to make one takes longer than the races
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "forced"), *races],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    caught = "".join(line for line in done.stdout.splitlines() if line.startswith("FAILED"))
    assert [race for race in planted.caught if race not in caught] == [], done.stdout[-3000:]
