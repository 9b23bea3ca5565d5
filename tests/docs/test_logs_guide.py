"""docs/logs.md: what its examples write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.docs.test_readme import blocks, environment

CALM, FILTER, STRUCTLOG, THROUGH_STRUCTLOG = [
    block for language, block in blocks("docs/logs.md") if language == "python"
]


def said(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=True)


def test_a_failure_that_is_tried_again_can_be_made_a_warning(tmp_path: Path) -> None:
    lines = [line for line in said(CALM, tmp_path).stderr.splitlines() if " queue=" in line]
    assert [line.split(" queue=")[0] for line in lines] == ["WARNING again", "ERROR gave up"]


def test_the_filter_says_which_job_it_is(tmp_path: Path) -> None:
    assert "INFO receipt order-17 #1 mailing\n" in said(FILTER, tmp_path).stderr


def test_structlog_says_which_job_it_is(tmp_path: Path) -> None:
    (line,) = said(STRUCTLOG, tmp_path).stdout.splitlines()
    assert json.loads(line) == {
        "event": "mailing", "job_id": 65537, "job_queue": "mails", "job_type": "receipt", "job_key": "order-17",
        "job_attempt": 1, "level": "info",
    }  # fmt: skip


def test_hipqs_own_lines_go_through_structlog(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in said(THROUGH_STRUCTLOG, tmp_path).stderr.splitlines()]
    (failed,) = [line for line in lines if line["event"] == "gave up"]
    assert (failed["level"], failed["job_type"], failed["job_key"], failed["job_attempt"]) == (
        "error", "receipt", "order-17", 1,
    )  # fmt: skip
    assert "ConnectionError: the mail server is away" in failed["exception"]
    (tmp_path / "shop.py").write_text(THROUGH_STRUCTLOG.replace("app.run(", "0 and app.run("))
    command = ["hipq", "worker", "shop:app", "--until-empty", "--log-format", "none"]
    worker = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    events = [json.loads(line)["event"] for line in worker.stderr.splitlines()]
    assert {"engine started", "gave up"} <= set(events)
