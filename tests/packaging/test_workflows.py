"""The workflows under .github: what they call exists, and nobody can change what they use."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_to_a_commit_and_may_only_read(workflow: Path) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", name)] == []
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_it_runs_exists(workflow: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        assert set(job.get("strategy", {}).get("matrix", {}).get("what", [])) <= targets
    for script in (step["run"] for step in steps(workflow) if "run" in step):
        assert set(re.findall(r"make ([a-z-]+)", script)) <= targets
        assert all((ROOT / name).exists() for name in re.findall(r"(?:\.ci|tests)/\S+", script)), script


def test_only_the_release_may_say_who_it_is() -> None:
    asking = [path.stem for path in WORKFLOWS if "id-token" in path.read_text()]
    assert asking == ["release"]


def test_actionlint_finds_nothing() -> None:
    if not (program := shutil.which("actionlint")):
        pytest.skip("actionlint is not installed")
    done = subprocess.run([program, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
