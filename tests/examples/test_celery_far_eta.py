"""examples/celery_far_eta: what is due comes once, what was taken back never, and the rest is kept."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

from hipq import Hipq
from tests.examples.running import PATIENCE, run, started

EXAMPLE = "celery_far_eta/remind_me.py"


def test_reminders_come_when_they_are_due(tmp_path: Path) -> None:
    with started(EXAMPLE, tmp_path, "worker") as worker:
        printed = run(EXAMPLE, tmp_path, "send")
        assert len(re.findall(r"is kept until \d{4}-\d\d-\d\d", printed)) == 2
        until = time.monotonic() + PATIENCE
        while reminders(tmp_path) != ["to begin", "the tea"]:
            assert time.monotonic() < until, reminders(tmp_path)
            assert worker.poll() is None
            time.sleep(0.05)
        worker.send_signal(signal.SIGTERM)
        said, complained = worker.communicate(timeout=PATIENCE)
    assert worker.returncode == 0, complained
    assert "remember: the tea" in said + complained
    assert "Traceback" not in complained
    kept = Hipq("celery", f"sqlite:///{tmp_path}/reminders.db")
    kept.queue("eta")
    codes = sorted((job.state, job.code) for job in kept.jobs("eta", type="publish"))
    kept.close()
    assert codes == [("final", "cancelled"), ("final", "ok"), ("initial", "NONE")]


def reminders(folder: Path) -> list[str]:
    file = folder / "reminders.txt"
    return file.read_text().splitlines() if file.exists() else []
