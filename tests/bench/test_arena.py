"""The arena: a cell that is really played, its ledger and its page; and the adapter for the public one."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from bench.arena.cells import CELLS
from bench.arena.entrants import entrant
from bench.arena.ledger import Ledger
from bench.arena.match import Pace, played
from bench.arena.page import section

from tests.daemon.api_serving import eventually
from tests.servers import clean_database

ADAPTER = Path(__file__).parents[2] / "bench" / "arena" / "hipq-bench"
REQUIRED = {"claim_p50_ms", "claim_p95_ms", "claim_p99_ms", "enqueue_rate", "completion_rate", "queue_depth"}


def test_the_ledger_knows_what_is_missing_and_what_ran_twice() -> None:
    ledger = Ledger()
    lines = b"A 0 3\nS 0 0.5\nD 0\nS 1 0.1\nS 1 0.2\nD 1\nD 1\nS 2 0.3\nD 9\nnoise\nA 5\n"
    ledger.follow(io.BytesIO(lines)).join()
    assert (ledger.added, ledger.missing, ledger.doubled) == (4, 2, 1)  # 9 ran, and nobody heard that it was added
    assert ledger.late(0, 1e12) == [0.1, 0.2, 0.3, 0.5]
    assert ledger.ended(0, 1e12) == 4


@pytest.mark.long
@pytest.mark.parametrize("name", ["killed", "PostgreSQL restarted"])
def test_a_cell_is_played_and_hipq_loses_nothing(name: str, tmp_path: Path) -> None:
    (cell,) = (cell for cell in CELLS if cell.name == name)
    found = played(entrant("hipq"), cell, Pace(50, 0, 1, 3, 60), tmp_path)
    assert found["added"] > 50
    assert (found["missing"], found["worker_exits"]) == (0, 0)
    assert found["p99_ms"] >= found["p50_ms"] > 0
    report = {
        "at": "2026-11-19T00:00:00", "quick": True, "minutes": 1, "machine": "two cores", "versions": {"hipq": "1"},
        "pace": Pace(50, 0, 1, 3, 60)._asdict() | {"workers": 2, "hands": 10}, "cells": [[cell.name, cell.about]],
        "results": {"hipq": {name: found}, "rival": {name: {"failed": "no"}}}, "failures": {"other": "needs npm"},
    }  # fmt: skip
    page = section(report)
    assert f"### {name[0].upper()}{name[1:]}\n" in page
    assert "| rival | no |" in page
    assert "Not there: other needs npm." in page
    assert len({line.count("|") for line in page.splitlines() if line.startswith("|")}) == 1


def test_the_adapter_keeps_the_contract_of_the_public_arena(tmp_path: Path) -> None:
    manifest = json.loads((ADAPTER / "adapter.json").read_text())
    (tmp_path / "rate").write_text("80")
    with clean_database() as url:
        environment = {
            "DATABASE_URL": url, "PRODUCER_RATE": "40", "WORKER_COUNT": "4", "SAMPLE_EVERY_S": "1",
            "PRODUCER_RATE_CONTROL_FILE": str(tmp_path / "rate"),
        }  # fmt: skip
        with (tmp_path / "out").open("wb") as out:
            process = subprocess.Popen([sys.executable, ADAPTER / "main.py"], stdout=out, env=os.environ | environment)

        def records() -> list[dict[str, object]]:
            return [json.loads(line) for line in (tmp_path / "out").read_text().splitlines() if line.endswith("}")]

        def latest(metric: str) -> float:
            return float(next((str(one["value"]) for one in reversed(records()) if one.get("metric") == metric), "0"))

        try:
            eventually(lambda: latest("completion_rate") > 40 and latest("enqueue_rate") > 40)
            with psycopg.connect(url) as conn:
                for name in (*manifest["event_tables"], *manifest["event_indexes"]):
                    assert conn.execute("SELECT to_regclass(%s)", [name]).fetchone() != (None,), name
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0
        finally:
            process.kill()
    first, *samples = records()
    assert (first["kind"], first["system"], first["db_name"]) == ("descriptor", "hipq", url.rpartition("/")[2])
    assert set(manifest["event_tables"]) <= set(first["event_tables"])  # type: ignore[call-overload]
    assert {str(one["metric"]) for one in samples} >= REQUIRED
    assert {str(one["kind"]) for one in samples} == {"adapter"}
    assert latest("claim_p99_ms") >= latest("claim_p50_ms") > 0
