"""What `import hipq` costs: it is paid by every web worker and every command."""

from __future__ import annotations

import os
import subprocess
import sys

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


def _cost(code: str) -> float:
    """Seconds of processor time: what other tests do at the same time does not count."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime


def test_importing_hipq_takes_less_than_importing_asyncio_twice() -> None:
    """Some 90 ms where asyncio takes 56: a measure that a slow or busy machine does not change."""
    codes = ("pass", "import hipq", "import asyncio")
    for code in codes:
        _cost(code)  # compiles what was not compiled yet
    bare, ours, theirs = (
        min(costs) for costs in zip(*([_cost(code) for code in codes] for _ in range(9)), strict=True)
    )
    assert ours - bare < 2 * (theirs - bare)
