"""What `import hipq` costs: it is paid by every web worker and every command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HEAVY = {
    "asyncio", "psycopg", "psycopg_pool", "logging", "sqlite3", "click", "subprocess", "multiprocessing", "concurrent",
    "ssl", "http", "email", "ctypes", "unittest", "argparse", "tempfile",
}  # fmt: skip


def test_importing_hipq_brings_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import hipq; print(*sorted(set(sys.modules) - before))"
    found = set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())
    assert "hipq.app" in found
    assert {name for name in found if name.split(".")[0] in HEAVY} == set()
    assert {name for name in found if name.startswith(("hipq.cli", "hipq.testing", "hipq.observe."))} == set()
    assert {name for name in found if name.startswith(("hipq.stores.sqlite", "hipq.stores.postgres"))} == set()


def test_a_command_is_imported_alone() -> None:
    """Each in a process that has imported no other, or one that needs what another imports would be found by users."""
    code = """
import os, sys
from hipq.cli.main import cli

before = set(sys.modules)
for name in cli.commands:
    if not os.fork():
        assert cli.commands[name].name == name, name
        print(name, *sorted(set(sys.modules) - before), flush=True)
        os._exit(0)
    os.wait()
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    found = {name: set(brought) for name, *brought in map(str.split, said.splitlines())}
    assert found.keys() >= {"job", "worker", "serve", "move", "callbacks", "answer"}
    assert len(found) > 25
    assert found["job"].isdisjoint({"asyncio", "hipq.cli.worker", "hipq.cli.serve", "hipq.engine.loop", "hipq.journal"})


def _cost(code: str, compiled: Path) -> float:
    """Seconds of processor time: what other tests do at the same time does not count."""
    command = [sys.executable, "-X", f"pycache_prefix={compiled}", "-c", code]
    pid = os.posix_spawn(sys.executable, command, os.environ | {"PYTHONDONTWRITEBYTECODE": ""})
    _, status, usage = os.wait4(pid, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime


def test_importing_hipq_takes_less_than_importing_asyncio_twice(tmp_path: Path) -> None:
    """A measure that a slow or busy machine does not change, of modules that are compiled already."""
    codes = ("pass", "import hipq", "import asyncio")
    for code in codes:
        _cost(code, tmp_path)
    bare, ours, theirs = (
        min(costs) for costs in zip(*([_cost(code, tmp_path) for code in codes] for _ in range(9)), strict=True)
    )
    assert ours - bare < 2 * (theirs - bare)
