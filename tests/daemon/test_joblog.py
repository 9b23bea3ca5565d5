"""The log of jobs: a line for each that enters, runs and completes; enough to work out how long they took."""

from __future__ import annotations

import json
import logging
import os
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hipq.daemon import joblog as module
from hipq.daemon.joblog import COMPLETES, ENTERS, RUNS, JobLog
from hipq.errors import Invalid
from hipq.events import JOB_EVENTS, Event, Events
from tests.daemon.working import add, daemon, ended, python


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_each_job_enters_runs_and_completes_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    with daemon(tmp_path, job_log=str(path)) as served:
        body = "import time\ntime.sleep(0.3)\nreturn (503, '') if job.attempt < int(payload) else 'secret'"
        python(served, "work", body)
        ids = add(served, "work", b"1", b"2", b"1")
        for job_id in ids:
            ended(served, job_id)
    found = lines(path)
    for job_id, attempts in zip(ids, (1, 2, 1), strict=True):
        mine = [line for line in found if line["id"] == str(job_id)]
        assert sorted(line["event"] for line in mine) == sorted(
            ["added", *["claimed"] * attempts, *["again"] * (attempts - 1), "ok"]
        )
        last = next(line for line in mine if line["event"] == "ok")
        assert (last["tenant"], last["type"], last["code"], last["exitcode"]) == ("acme", "work", "ok", 200)
        assert last["took"] >= last["ran"] >= 0.1
        assert last["cost"] >= 0.2 * attempts  # of all tries, each counted from a moment after it began
        assert all(line["waited"] >= 0 for line in mine if line["event"] == "claimed")
    assert "secret" not in path.read_text()
    took = [line["took"] for line in found if line["state"] == "final"]
    assert statistics.median(took) > 0


@pytest.mark.parametrize("payload", [b"1", b"\xff\xfe", b'\n"\\', "é".encode() * 10_000, b""])
def test_its_bytes_are_the_payloads(tmp_path: Path, payload: bytes) -> None:
    path = tmp_path / "jobs.jsonl"
    with daemon(tmp_path, job_log=str(path)) as served:
        python(served, "work", "return 'ok'")
        ended(served, add(served, "work", payload)[0])
    assert [line["bytes"] for line in lines(path) if line["event"] == "added"] == [len(payload)]


def test_all_its_events_exist_and_an_event_without_a_job_is_none_of_its_business(tmp_path: Path) -> None:
    assert {*ENTERS, *RUNS, *COMPLETES} <= set(JOB_EVENTS)
    log = JobLog(str(tmp_path / "log"), Events())
    log._write(Event("staged", 1))
    log.close()
    assert lines(tmp_path / "log") == []


def test_it_is_rotated_and_only_so_much_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIZE", 3_000)
    with daemon(tmp_path, job_log=str(tmp_path / "log")) as served:
        python(served, "work", "return payload")
        for job_id in add(served, "work", *[b"x"] * 60):
            ended(served, job_id)
    files = sorted(path.name for path in tmp_path.glob("log*"))
    assert files == ["log", "log.1", "log.2", "log.3", "log.4"]
    assert all(path.stat().st_size <= 3_000 for path in tmp_path.glob("log*"))
    assert all(lines(path) for path in tmp_path.glob("log.?"))


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be written"):
        JobLog(str(tmp_path), Events())


def test_a_log_that_cannot_be_written_any_more_stops_no_work_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon(tmp_path, job_log=str(tmp_path / "log")) as served:
        assert served._log
        assert served._log._file.stream
        served._log._file.stream.close()
        served._log._file.stream = open("/dev/full", "w")  # noqa: SIM115 - closed by its handler
        python(served, "work", "return payload")
        for job_id in add(served, "work", b"1", b"2", b"3"):
            assert ended(served, job_id).code == "ok"
        served._log._file.stream = open(tmp_path / "log", "w")  # noqa: SIM115
    assert caplog.text.count("the log of jobs cannot be written") == 1
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("jq"), reason="jq is not installed here")
def test_the_query_of_the_guide_gives_latencies_by_jobtype(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    with daemon(tmp_path, job_log=str(path)) as served:
        python(served, "work", "return payload")
        for job_id in add(served, "work", *[b"x"] * 5):
            ended(served, job_id)
    guide = (Path(__file__).parents[2] / "docs" / "daemon.md").read_text()
    query = "jq -cs " + guide.split("```sh\njq -cs ")[1].split("\n```")[0]
    said = subprocess.run(query, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    (row,) = (json.loads(line) for line in said.splitlines())
    assert (row["tenant"], row["type"], row["jobs"]) == ("acme", "work", 5)
    assert 0 < row["p50"] <= row["p99"]


def test_the_log_and_its_older_parts_are_for_their_owner_or_a_group_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SIZE", 100)
    record = logging.LogRecord("hipq.jobs", logging.INFO, "", 0, "x" * 90, None, None)
    before = os.umask(0)
    try:
        for group, mode in (("", 0o600), (str(os.getgid()), 0o660)):
            monkeypatch.setenv("HIPQ_GROUP", group)
            log = JobLog(str(tmp_path / f"jobs{group}.jsonl"), Events())
            for _ in range(3):
                log._file.handle(record)
            log.close()
            assert not caplog.records
            modes = [path.stat().st_mode & 0o777 for path in tmp_path.glob(f"jobs{group}.jsonl*")]
            assert modes == [mode] * 3
    finally:
        os.umask(before)
    monkeypatch.setenv("HIPQ_GROUP", "")
    old = tmp_path / "old.jsonl"
    old.touch()
    old.chmod(0o644)
    JobLog(str(old), Events()).close()
    assert f"may open the log of jobs {old} (0644)" in caplog.text
