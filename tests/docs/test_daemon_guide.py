"""docs/daemon.md: a job is answered in two minutes, and its scheduler schedules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from tests.daemon.working import add, daemon, ended, python
from tests.docs.test_readme import blocks, environment
from tests.servers import free_port

PAGE = "docs/daemon.md"


def test_the_first_example_runs(tmp_path: Path) -> None:
    (script,) = [block for language, block in blocks(PAGE) if language == "sh" and "hipq serve" in block]
    port = str(free_port())
    script = script.replace("8000", port).replace("hipq serve &", f"hipq serve --port {port} --trust-handlers &")
    script = re.sub(r"^pip install .*\n", "", script) + "kill %1; wait\n"
    done = subprocess.run(
        ["bash", "-mc", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines()[-1] == "HELLO", done.stdout + done.stderr


def test_its_scheduler_says_whose_turn_it_is(tmp_path: Path) -> None:
    (block,) = [block for language, block in blocks(PAGE) if language == "python"]
    there: dict[str, Any] = {}
    exec(compile(block, PAGE, "exec"), there)
    made = there["InTurn"]()
    assert made.select_jobtype_to_run(["acme/a", "acme/b"], {"acme/a": 1, "acme/b": 3}) == "acme/b"
    with daemon(tmp_path, scheduler=made) as served:
        python(served, "work", "return payload")
        assert all(ended(served, job_id).code == "ok" for job_id in add(served, "work", b"x", b"y"))
