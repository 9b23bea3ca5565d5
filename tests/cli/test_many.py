"""What is done to jobs, one by one and by filter: `hipq job cancel|retry|change|again`, `hipq prune`."""

from __future__ import annotations

import os
import pty
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hipq.cli.job_list import Listed, _times
from hipq.job.when import SECOND, to_datetime
from tests import processes
from tests.cli.conftest import HipqCommand


@pytest.fixture
def ids(hipq: HipqCommand) -> list[str]:
    """Five jobs that are due in an hour, two of them mails."""
    orders = [hipq("enqueue", "shop:app", "orders", "quick", "--delay", "1h").out.strip() for _ in range(3)]
    return orders + [hipq("enqueue", "shop:app", "mails", "mail", "--delay", "1h").out.strip() for _ in range(2)]


def states(hipq: HipqCommand) -> list[str]:
    """Of orders, then of mails."""
    jobs = hipq("job", "list", "shop:app", "--oldest", "--json").json
    return [job["state"] for queue in ("orders", "mails") for job in jobs if job["queue"] == queue]


def test_several_ids(hipq: HipqCommand, ids: list[str]) -> None:
    done = hipq("job", "cancel", "shop:app", *ids[:2])
    assert (done.status, done.out) == (0, "cancel: 2 done, 0 not\n")
    assert states(hipq) == ["final", "final", "initial", "initial", "initial"]


def test_what_cannot_be_done_to_one_is_done_to_the_others(hipq: HipqCommand, ids: list[str]) -> None:
    hipq("job", "cancel", "shop:app", ids[0])
    done = hipq("job", "cancel", "shop:app", *ids[:3], "999999999")
    assert (done.status, done.out) == (1, "cancel: 2 done, 2 not\n")
    assert f"job {ids[0]} is final (cancelled)" in done.err
    assert "there is no job 999999999 here" in done.err
    failed = hipq("job", "cancel", "shop:app", ids[0], ids[3], "--json")
    assert failed.status == 1
    assert failed.json["changed"] == 1
    assert [one["id"] for one in failed.json["failed"]] == [int(ids[0])]


def test_by_filter(hipq: HipqCommand, ids: list[str]) -> None:
    done = hipq("job", "cancel", "shop:app", "--queue", "orders", "--yes", "--reason", "enough")
    assert (done.status, done.out) == (0, "cancel: 3 of 3 done\n")
    assert states(hipq) == ["final", "final", "final", "initial", "initial"]
    assert hipq("job", "show", "shop:app", ids[0], "--json").json["error"] == "enough"
    none = hipq("job", "cancel", "shop:app", "--queue", "orders", "--yes")
    assert (none.status, none.out) == (0, "no job is like that: nothing was changed\n")
    everywhere = hipq("job", "cancel", "--db", "sqlite:///shop.db", "--state", "initial", "--yes", "--json")
    assert everywhere.json == {"found": 2, "changed": 2, "skipped": 0}


def test_without_a_terminal_it_must_be_said_that_it_is_meant(hipq: HipqCommand, ids: list[str]) -> None:
    for command in (
        ("job", "cancel", "shop:app", "-q", "orders"),
        ("job", "retry", "shop:app", "-q", "orders"),
        ("job", "change", "shop:app", "-q", "orders", "--priority", "1"),
        ("prune", "shop:app", "--older-than", "0"),
    ):
        refused = hipq(*command)
        assert refused.status == 2
        assert "say --yes" in refused.err
    assert "This will cancel 3 jobs in orders" in hipq("job", "cancel", "shop:app", "-q", "orders").err
    assert states(hipq) == ["initial"] * len(ids)


@pytest.mark.parametrize(("typed", "state"), [("y\n", "final"), ("n\n", "initial"), ("\n", "initial")])
def test_on_a_terminal_it_is_asked(hipq: HipqCommand, ids: list[str], typed: str, state: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "hipq.cli.main", "job", "cancel", "shop:app", "-q", "orders"]
    with processes.Popen(command, stdin=theirs, stderr=theirs, stdout=theirs) as asked:
        os.close(theirs)
        os.write(ours, typed.encode())
        said = b""
        try:
            while more := os.read(ours, 4096):
                said += more
        except OSError:
            pass  # it has ended
    os.close(ours)
    assert b"This will cancel 3 jobs in orders. Go on? [y/N]" in said
    assert asked.returncode == (0 if state == "final" else 1)
    assert (b"nothing was changed" in said) == (state == "initial")
    assert states(hipq)[:3] == [state] * 3
    assert len(ids) == 5


def test_retry(hipq: HipqCommand, ids: list[str]) -> None:
    assert hipq("job", "retry", "shop:app", ids[0], "--json").json["phase"] == "ready"
    again = hipq("job", "retry", "shop:app", ids[0])
    assert again.status == 1
    assert "only a scheduled job can be run now" in again.err
    done = hipq("job", "retry", "shop:app", "--queue", "orders", "--yes")
    assert done.out == "run now: 2 of 3 done; 1 were at a point where it cannot be done\n"


def test_change(hipq: HipqCommand, ids: list[str]) -> None:
    assert hipq("job", "change", "shop:app", ids[0], "--priority", "7", "--json").json["priority"] == 7
    at = "2031-01-15T08:00:00+01:00"
    changed = hipq("job", "change", "shop:app", ids[0], "--at", at, "--json").json
    assert changed["scheduled_run_time"] == "2031-01-15T07:00:00+00:00"
    assert hipq("job", "change", "shop:app", ids[0], "--delay", "0", "--json").json["phase"] == "ready"
    done = hipq("job", "change", "shop:app", "--queue", "mails", "--priority", "3", "--yes", "--json").json
    assert done == {"found": 2, "changed": 2, "skipped": 0}
    for words, says in (
        ((ids[0],), "say what to change: --at, --delay or --priority"),
        ((ids[0], "--at", at, "--delay", "1"), "not both"),
        ((ids[0], "--at", "soon"), "at must be a moment"),
        (("--priority", "1"), "say which jobs: ids, or filters"),
        ((ids[0], "--queue", "orders", "--priority", "1"), "give ids or filters, not both"),
    ):
        refused = hipq("job", "change", "shop:app", *words)
        assert refused.status == 2
        assert says in refused.err


def test_again(hipq: HipqCommand, ids: list[str]) -> None:
    live = hipq("job", "requeue", "shop:app", ids[0])
    assert live.status == 1
    assert "it has not ended" in live.err
    hipq("job", "cancel", "shop:app", "--queue", "orders", "--yes")
    new = hipq("job", "requeue", "shop:app", ids[0], "--json").json
    assert (new["state"], new["type"]) == ("initial", "quick")
    assert str(new["id"]) not in ids
    done = hipq("job", "requeue", "shop:app", "--code", "cancelled", "--yes", "--json").json
    assert done == {"found": 3, "changed": 3, "skipped": 0}
    assert len(states(hipq)) == 5 + 4


def test_what_is_empty_is_not_everything(hipq: HipqCommand, ids: list[str]) -> None:
    """As a variable in a script that is not set."""
    for words in (
        ("job", "cancel", "shop:app", "--key", "", "--yes"),
        ("job", "cancel", "shop:app", "--type", "", "--yes"),
        ("job", "cancel", "shop:app", "--error", "", "--yes"),
        ("job", "cancel", "shop:app", "--queue", "", "--yes"),
        ("job", "cancel", "--db", "", "--state", "initial", "--yes"),
        ("prune", "shop:app", "--keep", "0", "--type", "", "--yes"),
        ("prune", "--db", "", "--keep", "0", "--yes"),
    ):
        refused = hipq(*words)
        assert (refused.status, refused.out) == (2, ""), words
    assert states(hipq) == ["initial"] * len(ids)


def test_a_file_does_not_widen_what_is_typed(hipq: HipqCommand, ids: list[str]) -> None:
    hipq("job", "cancel", "shop:app", *ids)
    Path("hipq.toml").write_text("[prune]\nkeep = 1\n")
    assert hipq("prune", "shop:app", "--older-than", "1h", "--yes", "--json").json["deleted"] == 0
    assert hipq("prune", "shop:app", "--yes", "--json").json["deleted"] == 3


def test_filters_of_a_list(hipq: HipqCommand, ids: list[str]) -> None:
    hipq("job", "cancel", "shop:app", ids[1], "--reason", "not wanted any more")

    def listed(*words: str) -> list[str]:
        return [str(job["id"]) for job in hipq("job", "list", "shop:app", *words, "--json").json]

    assert listed("--code", "cancelled") == [ids[1]]
    assert listed("--code", "failed") == []
    assert listed("--error", "wanted any") == [ids[1]]
    assert listed("--newer-than", "1h") == ids[::-1], "by time: ids of queues cannot be compared"
    assert listed("--newer-than", "1h", "--oldest") == ids
    assert listed("--older-than", "1h") == []
    assert listed("--since", "2031-01-15T08:00:00Z") == []
    assert listed("--before", "2031-01-15T08:00:00Z", "--lane", "east") == []
    assert "since must be a moment" in hipq("job", "list", "shop:app", "--since", "yesterday").err


@pytest.mark.parametrize("oldest", [[], ["--oldest"]])
def test_the_next_page(hipq: HipqCommand, ids: list[str], oldest: list[str]) -> None:
    """Of several queues: as the command says it that found more."""
    command, seen, pages = ["hipq", "job", "list", "shop:app", *oldest, "--limit", "2"], [], 0
    while command and pages < len(ids):
        page, pages = hipq(*command[1:]), pages + 1
        seen += [line.split()[0] for line in page.out.splitlines()[1:]]
        command = shlex.split(page.err.partition("there is more: ")[2])
    assert (seen, pages) == (ids if oldest else ids[::-1], 3)
    behind = hipq("job", "list", "shop:app", "-q", "orders", "--after", ids[1], "--json").json
    assert [str(job["id"]) for job in behind] == [ids[0]]
    for wrong in ("x", "1,", "-1"):
        refused = hipq("job", "list", "shop:app", "--after", wrong)
        assert (refused.status, "after must be a whole number" in refused.err) == (2, True)


def test_what_a_list_says_of_a_job(hipq: HipqCommand, ids: list[str]) -> None:
    """Columns that no job fills are left out."""
    hipq("job", "cancel", "shop:app", ids[1], "--reason", "not wanted any more, and that is a very long story")
    lines = hipq("job", "list", "shop:app", "-q", "orders").out.splitlines()
    assert lines[0].split() == [
        "id", "queue", "type", "key", "state", "phase", "code", "attempt", "age", "duration", "scheduled", "run",
        "time", "error",
    ]  # fmt: skip
    (ended,) = (line for line in lines if line.split()[0] == ids[1])
    assert ended.endswith("  not wanted any more, and that is a very…")
    assert ended.split()[4:7] == ["final", "done", "cancelled"]
    only = hipq("job", "list", "shop:app", "-q", "orders", "--phase", "done").out.splitlines()
    assert "scheduled" not in only[0]
    jobs = hipq("job", "list", "shop:app", "-q", "orders", "--json").json
    assert [job["duration"] is None for job in jobs] == [True, False, True]
    assert all(job["age"] >= 0 for job in jobs)


def test_a_duration_is_from_when_the_job_was_due_to_its_end() -> None:
    """Not from when it was added; and no less than nothing, if it ended before it was due."""

    def job(job_id: int, due: int, ended: int) -> Any:
        moments = {"create_time": 100, "scheduled_run_time": due, "update_time": ended}
        return SimpleNamespace(
            id=job_id, state="final", **{name: to_datetime(at * SECOND) for name, at in moments.items()}
        )

    app: Any = SimpleNamespace(name="shop", store=SimpleNamespace(now=lambda: 5000 * SECOND))
    jobs = [job(1, 3700, 3707), job(2, 90, 103), job(3, 3700, 200)]
    found = _times([Listed(app, "orders", one) for one in jobs])
    assert found == {n: {"age": 4900.0, "duration": took} for n, took in ((1, 7.0), (2, 3.0), (3, 0.0))}


def test_prune(hipq: HipqCommand, ids: list[str]) -> None:
    hipq("job", "cancel", "shop:app", "--queue", "orders", "--yes")
    assert hipq("prune", "shop:app", "--keep", "3", "--yes", "--json").json["deleted"] == 0
    assert hipq("prune", "shop:app", "--keep", "2", "--yes", "--json").json["deleted"] == 1
    assert hipq("prune", "shop:app", "--older-than", "0", "--code", "ok", "--yes").out == "deleted 0 jobs\n"
    assert hipq("prune", "shop:app", "--keep", "0", "--type", "quick", "--yes").out == "deleted 2 jobs\n"
    for words, says in (
        ((), "say what to delete: --older-than 30d, or --keep 100000"),
        (("--keep", "-1"), "keep must be a whole number"),
        (("--older-than", "0", "--code", "good"), "good"),
    ):
        refused = hipq("prune", "shop:app", *words, "--yes")
        assert refused.status == 2
        assert says in refused.err
    assert len(ids) == 5
