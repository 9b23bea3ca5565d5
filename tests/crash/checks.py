"""What the crash tests look at: what handlers noted before they did anything, and what became of each job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hipq import Hipq
from tests.crash.workers import eventually


def ran(folder: Path) -> Counter[int]:
    """How often each job's handler began."""
    file = folder / "ran"
    return Counter(int(line.split()[0]) for line in file.read_text().splitlines()) if file.exists() else Counter()


def pids(folder: Path) -> set[str]:
    file = folder / "ran"
    return {line.split()[2] for line in file.read_text().splitlines()} if file.exists() else set()


def more_run(folder: Path, seen: int, more: int) -> None:
    """Wait until some more jobs have begun than were seen before they were added."""
    eventually(lambda: len(ran(folder)) > seen + more, 60, f"{more} more jobs run")


def unfinished(app: Hipq) -> int:
    """In one look: with a look per state, a job that moves between two of them is in neither."""
    return sum(job.state != "final" for job in app.jobs(app.queues[0].name, limit=10_000))


def check_all_done(app: Hipq, ids: Sequence[int], folder: Path) -> None:
    executions = ran(folder)
    for job_id in ids:
        job = app.job(job_id)
        assert (job.state, job.code) == ("final", "ok"), job.history
        assert executions[job_id] >= 1, f"job {job_id} is done and never ran"
        events = Counter(entry["event"] for entry in job.history)
        if not events["left out"]:
            untried = sum("never confirmed" in entry.get("error", "") for entry in job.history)
            assert job.attempt == events["claimed"] - untried - _unstarted(job.history), job.history
    assert set(executions) <= set(ids), "something ran that nobody submitted"


def _unstarted(history: list[dict[str, object]]) -> int:
    return sum("no hand was free" in str(entry.get("error", "")) for entry in history)
