"""docs/celery.md: its programs run, with a broker in memory and a database in a file."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import hipq.celery
from tests import processes

GUIDE = (Path(__file__).parents[2] / "docs/celery.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)


def test_its_programs_keep_a_task(tmp_path: Path) -> None:
    tasks, send = PROGRAMS
    elsewhere = tasks.replace("redis://localhost", "memory://").replace(
        "postgresql://localhost/shop", "sqlite:///kept.db"
    )
    assert "memory://" in elsewhere
    assert "sqlite:///kept.db" in elsewhere
    (tmp_path / "tasks.py").write_text(elsewhere)
    (tmp_path / "send.py").write_text(send)
    processes.run([sys.executable, "send.py"], cwd=tmp_path, check=True, timeout=120)
    listing = processes.run(
        [sys.executable, "-m", "hipq.cli.main", "job", "list", "tasks:kept", "--state", "initial"],
        cwd=tmp_path, check=True, timeout=120, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert len(re.findall(r"^\d+ +eta +publish +[0-9a-f-]{36} +initial", listing, flags=re.MULTILINE)) == 1


def test_it_says_how_install_is_called() -> None:
    said = re.search(r"`hipq\.celery\.install(\(.*?\))` returns", GUIDE, flags=re.DOTALL)
    assert said
    called = re.findall(r"(\w+)=([^,)]+)", said[1])
    parameters = inspect.signature(hipq.celery.install).parameters
    assert {name: eval(value) for name, value in called} == {
        name: one.default for name, one in parameters.items() if one.default is not one.empty
    }
    assert set(re.findall(r"^\| `(\w+)` \|", GUIDE, flags=re.MULTILINE)) == set(parameters) - {"app"}
