"""Jobs of tenants that no daemon can run: they are tried again, and nobody would notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hipq.cli.main import run
from tests.daemon.working import add, daemon, python, row
from tests.engine.working import until


def test_jobs_without_a_handler_are_noticed(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    def told() -> list[tuple[str, dict[str, object]]]:
        run(["doctor", "--db", url, "--json"])
        found = json.loads(capsys.readouterr().out)
        return [(one["sentence"], one["facts"]) for one in found if "cannot run" in one["sentence"]]

    with daemon(tmp_path, url, retry_after=600.0, retry_most=600.0) as served:
        python(served, "fails", "raise ValueError('its own')")
        first, *others = add(served, "forgotten", b"x", b"y")
        (failed,) = add(served, "fails", b"x")
        add(served, "later", b"x", delay=3600)
        until(lambda: all(row(served, one).failures for one in (first, *others, failed)))
        ((sentence, facts),) = told()
        assert sentence.startswith("2 jobs of type forgotten of tenant acme cannot run, the first")
        assert sentence.endswith(": there is no handler for forgotten")
        assert facts == {"tenant": "acme", "job_type": "forgotten", "jobs": 2, "first": first}
        for one in (first, *others):
            served.jobs.cancel("acme", one, "")
        until(lambda: told() == [])
