"""`hipq journal recover --from`: the journal of a daemon whose machine does not come back, killed at each step."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hipq.daemon import take_over as module
from hipq.daemon.ids import JournalIds, journal_of
from hipq.daemon.take_over import take_over
from hipq.errors import Invalid, JournalRefused
from hipq.job.model import sequence_of
from hipq.stores.filters import Filter
from hipq.stores.open import open_store
from tests import processes
from tests.cli.test_journal import damage
from tests.daemon.taking_over import lost
from tests.daemon.working import add, daemon, ended, made, python, refuse
from tests.engine.conftest import url
from tests.engine.working import until
from tests.journal.helpers import ends
from tests.servers import clean_database

__all__ = ["url"]

PROJECT = Path(__file__).parents[2]


def taken(folder: Path, url: str) -> int:
    return take_over(str(folder), url, lambda _: None).jobs


def stored(url: str) -> Counter[int]:
    store = open_store(url)
    try:
        (queue,) = store.queues()
        return Counter(row.id for row in store.find(Filter(queue.number, limit=100_000), brief=True))
    finally:
        store.close()


def is_over(url: str, ids: list[int]) -> bool:
    """Every daemon can tell that nothing will come any more under other ids of these blocks."""
    store = open_store(url)
    try:
        return all(journal_of(store, sequence_of(one)) == "" for one in ids)
    finally:
        store.close()


def test_what_it_had_accepted_is_stored_and_a_second_time_nothing_is(tmp_path: Path, url: str) -> None:
    ids = lost(tmp_path / "lost", url)
    assert stored(url) == Counter(ids[:6])
    counted: list[int] = []
    done = take_over(str(tmp_path / "lost"), url, counted.append)
    assert (done.jobs, sum(counted), [one.kind for one in done.found]) == (12, 12, ["cut"])
    assert stored(url) == Counter(ids)
    assert is_over(url, ids)
    assert taken(tmp_path / "lost", url) == 0
    assert stored(url) == Counter(ids)


def test_one_that_died_before_it_said_so_says_so_the_next_time(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = lost(tmp_path / "lost", url)
    with monkeypatch.context() as dying:
        dying.delattr(JournalIds, "all_stored")
        with pytest.raises(AttributeError):
            taken(tmp_path / "lost", url)
    assert stored(url) == Counter(ids)
    assert not is_over(url, ids)
    os.unlink(tmp_path / "lost/daemon")  # a copy need not have it
    assert taken(tmp_path / "lost", url) == 0
    assert is_over(url, ids)


@pytest.mark.parametrize("kind", ["files", "store"])
def test_killed_at_any_step_it_is_run_again_and_each_job_is_there_once(tmp_path: Path, kind: str) -> None:
    """On SQLite at each call that changes a file or the database, on PostgreSQL around each of the latter."""
    if kind == "files":
        check_steps(tmp_path, f"sqlite:///{tmp_path}/daemon.db", kind, 19)
    else:
        with clean_database() as url:
            check_steps(tmp_path, url, kind, 8)


def check_steps(folder: Path, url: str, kind: str, least: int) -> None:
    command = [sys.executable, "-m", "tests.daemon.taking_over", str(folder), url, kind]
    ran = processes.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=280, check=True)
    assert ran.stderr == ""
    *died, whole = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(died) >= least
    assert {one["status"] for one in died} == {-signal.SIGKILL}
    assert (whole["status"], whole["jobs"]) == (0, 0)
    assert {one["again"] for one in died} == {0}
    assert {one["jobs"] for one in died} >= {0, 12}, "some died before, and some behind it"
    ids = [job_id for one in (*died, whole) for job_id in one["ids"]]
    assert stored(url) == Counter(ids)
    assert is_over(url, ids)


def test_a_journal_whose_daemon_lives_is_left_alone_wherever_a_copy_of_it_is(tmp_path: Path, url: str) -> None:
    with daemon(tmp_path, url) as served:
        add(served, "mail", b"x")
        until(lambda: served.store.notes(module.ENGINE))
        before = shutil.copytree(tmp_path / "journal", tmp_path / "copy")
        with (max(before.glob("*.journal"))).open("ab") as last:
            last.write(b"#:Batch half")
        size = max(before.glob("*.journal")).stat().st_size
        for folder in (tmp_path / "journal", before):
            with pytest.raises(JournalRefused, match=r"is alive \(.*\): stop it, or wait until its lease is over, in"):
                taken(folder, url)
        assert max(before.glob("*.journal")).stat().st_size == size, "not even its end was cut off"
        os.unlink(before / "identity")
        with pytest.raises(JournalRefused, match="is alive"):
            taken(before, url)
    assert taken(tmp_path / "copy", url) == 0
    assert taken(tmp_path / "journal", url) == 0


def test_one_that_is_open_here_is_refused_whatever_the_database_says(tmp_path: Path, url: str) -> None:
    served = made(tmp_path, url)
    try:
        with pytest.raises(JournalRefused, match="is in use by another process"):
            taken(tmp_path / "journal", url)
    finally:
        served.stop()
        served.close()


def test_two_copies_are_taken_over_at_once_and_its_daemon_comes_back_after_all(tmp_path: Path, url: str) -> None:
    ids = lost(tmp_path / "journal", url)
    copies = [shutil.copytree(tmp_path / "journal", tmp_path / name) for name in ("a", "b")]
    failed: list[BaseException] = []

    def run(copy: Path) -> None:
        try:
            taken(copy, url)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert stored(url) == Counter(ids)
    served = made(tmp_path, url)
    python(served, "mail", "return payload.upper()")  # before it starts: a try without a handler is one, too
    served.start()
    try:
        (job_id,) = add(served, "mail", b"new")
        assert ended(served, job_id).code == "ok"
        assert {ended(served, one).attempt for one in ids} == {1}
        assert stored(url) == Counter([*ids, job_id])
    finally:
        served.stop()
        served.close()


def test_what_the_database_refuses_is_in_quarantine_and_what_is_damaged_is_said(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from hipq.cli.main import run

    served = made(tmp_path, url)
    good = add(served, "mail", b"good")
    add(served, "mail", b"bad one")
    add(served, "mail", b"damaged")
    good += add(served, "mail", b"good too")
    refuse(served.store, url, "bad")
    served.stop()
    served.close()
    lost = tmp_path / "journal"
    damage(lost, 1, ends(lost, 1)[1] + 200)
    words = ["journal", "recover", "--from", str(lost), "--db", url, "--json"]
    for jobs in (3, 0):
        assert run(words) == 1
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert said["jobs"] == jobs
        assert {"refused", "damage"} >= {one["kind"] for one in said["found"]} >= {"refused"}
        assert stored(url) == Counter(good)
    assert run(["audit", "--db", url, "--json"]) == 0
    last, first = json.loads(capsys.readouterr().out)
    assert (first["action"], first["details"]["jobs"], last["details"]["jobs"]) == ("journal recover", 3, 0)


def test_a_database_that_is_not_its_own_is_left_alone(tmp_path: Path, url: str) -> None:
    lost(tmp_path / "lost", url)
    with pytest.raises(Invalid, match="no daemon has used this database"):
        taken(tmp_path / "lost", f"sqlite:///{tmp_path}/mistyped.db")
    assert not (tmp_path / "mistyped.db").exists()
    lost(tmp_path / "other", f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(JournalRefused, match="belongs to another database"):
        taken(tmp_path / "lost", f"sqlite:///{tmp_path}/other.db")


def test_the_steps_of_the_guide(tmp_path: Path) -> None:
    page = (PROJECT / "docs/journal.md").read_text()
    section = page.partition("## A machine that does not come back")[2].partition("\n## ")[0]
    steps = [
        line.strip() for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in block.splitlines()
    ]
    steps = [line for line in steps if line]
    assert len(steps) == 4
    with clean_database() as url:
        ids = lost(tmp_path / "lost", url)
        done: list[str] = []
        for step in steps:
            words = shlex.split(step.replace("postgresql://hipq@db.example/hipq", url))
            ran = processes.run(
                [sys.executable, "-m", "hipq.cli.main", *words[1:]], cwd=tmp_path, capture_output=True, text=True,
                check=True,
            )  # fmt: skip
            done.append(ran.stdout)
        assert "\n12 jobs taken over, no damage" in done[1]
        assert done[2].startswith("0 jobs taken over")
        assert done[3] == "", "nothing is in quarantine"
        assert stored(url) == Counter(ids)
