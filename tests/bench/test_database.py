"""What is measured on PostgreSQL is measured on one that syncs: a ratio to what keeps nothing says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import psycopg
from bench.database import fresh_database

with fresh_database() as url, psycopg.connect(url) as conn:
    for name in ("fsync", "synchronous_commit", "full_page_writes", "autovacuum", "data_directory"):
        print(conn.execute(f"SHOW {name}").fetchone()[0])
"""


def test_its_data_are_synced_to_a_disk_and_swept() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "HIPQ_TEST_POSTGRES_URL"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    *settings, folder = ran.stdout.split()
    assert settings == ["on"] * 4
    assert not folder.startswith("/dev/shm")
