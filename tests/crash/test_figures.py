"""The campaign's audit can fail: whatever must not be in a log, or in a database, is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq import Hipq
from tests.crash.figures import Figures
from tests.crash.load import Log, make_load
from tests.crash.workers import eventually


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Hipq]:
    app = make_load("sqlite://", tmp_path)
    yield app
    app.close()


def test_what_is_in_order_is_not_found_fault_with(app: Hipq, tmp_path: Path) -> None:
    log, jobs = Log(tmp_path), app.queues[0]
    for kind in ("work", "flaky", "charge", "direct", "silent"):
        log("added", jobs.enqueue(kind, kind, key=kind), kind)
    for kind in ("charge", "direct"):
        app.answer("jobs", kind, kind, {"for": kind})
        log("answered", kind)
    unwanted = jobs.enqueue("unwanted", "unwanted", delay=60)
    app.cancel(unwanted)
    log("cancelled", unwanted)
    log("unanswered", "never-stored")
    with app.working(poll=0.1):
        eventually(lambda: app.jobs.count("jobs", live=True) == 0, 60, "all are final")
    figures = Figures(app, tmp_path)
    assert figures.wrong == {"lost": [], "doubled": [], "run again": []}
    told = figures.told()
    assert told["acknowledged"] == 5
    assert (told["unanswered"], told["run twice"]) == ("1, of which 0 were stored", 0)


def test_all_that_must_not_be_is_found(app: Hipq, tmp_path: Path) -> None:
    log, jobs = Log(tmp_path), app.queues[0]
    done, stays, twice = jobs.enqueue("work", "done"), jobs.enqueue("work", "stays", delay=60), 7 << 16
    app.run(until_empty=True)
    jobs.enqueue("work", "stays", delay=60)
    said = {
        f"added {twice} gone": "was acknowledged and is not there",
        f"added {done} other": "was acknowledged and is not there",
        "answered done": "its job came to ok",
        f"cancelled {done}": "was cancelled, and has",
        f"saved {done} 1 failed": "was stored as failed, and is ok",
        f"saved {done} 2 again": "it has 1 attempts",
        f"saved {twice} 1 ok": "an outcome of job",
        f"began {twice} 1": "ran, and is not there",
        f"began {done} 1": f"attempt 1 of job {done} began 2 times",
        f"looked {done} 1": "after the job had ended",
    }
    for line in said:
        log(line)
    wrong = Figures(app, tmp_path).wrong
    found = "\n".join(sentence for some in wrong.values() for sentence in some)
    for sentence in said.values():
        assert sentence in found
    assert f"job {stays} (" in found
    assert f"attempt 1 of job {done} began after its outcome was stored" in wrong["run again"]
    assert wrong["doubled"] == ['"stays" is there 2 times']
