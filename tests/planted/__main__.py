"""`make proof-bugs`: plant each bug in a copy of the source and see the simulation catch it.

A check that no bug can fail proves nothing. Each bug gets its own copy and its own process.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.planted.bug import Bug
from tests.planted.bugs import BUGS

SOURCE = Path(__file__).parents[2] / "src"
RUNS = 400


def misfits(bug: Bug) -> list[str]:
    """The texts of a bug that are not in the source exactly once."""
    return [old for name, old, _ in bug.edits if (SOURCE / "hipq" / name).read_text().count(old) != 1]


def plant(bug: Bug, target: Path) -> None:
    shutil.copytree(SOURCE, target, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in bug.edits:
        file = target / "hipq" / name
        text = file.read_text()
        file.write_text(text.replace(old, new))


def simulate(source: Path, runs: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", "--runs", str(runs)]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True, text=True, check=False
    )


def failing_test(bug: Bug, source: Path) -> str:
    """What its test says with it, or '' if that passes."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", bug.test]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        command, cwd=SOURCE.parent, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode == 0:
        return ""
    failed = re.search(r"^FAILED \S+?::(\S+)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or not failed:
        raise SystemExit(f"{bug.name}: its test did not run:\n{done.stdout}{done.stderr}")
    return f"{bug.by}: {failed[1]}"


def found_with(bug: Bug) -> str:
    """The first seed that fails with it and how, or '' if every run went well."""
    with tempfile.TemporaryDirectory() as folder:
        plant(bug, Path(folder) / "src")
        if bug.test:
            return failing_test(bug, Path(folder) / "src")
        done = simulate(Path(folder) / "src", RUNS)
    if done.returncode == 0:
        return ""
    found = re.search(r"seed (\d+): (\w+): (.{0,90})", done.stderr)
    if not found:
        raise SystemExit(f"{bug.name}: the simulation did not run:\n{done.stderr}")
    return f"seed {found[1]}: {found[3]}" if found[2] == "Broken" else f"seed {found[1]}: {found[2]} {found[3]}"


def is_proof(bug: Bug, found: str) -> bool:
    """It was caught by what must catch it: that something fails proves nothing of the check that is meant."""
    return re.match(rf"(?:seed \d+: )?(?:{bug.by})\b", found) is not None


def main() -> int:
    """All of them, or those whose names have one of the given words in it."""
    words = sys.argv[1:]
    bugs = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    if unfit := {bug.name: texts for bug in bugs if (texts := misfits(bug))}:
        raise SystemExit(f"the source has changed: {unfit}")
    missed = 0
    if found := found_with(Bug("no bug", "", ())):
        print(f"without any bug planted the simulation fails: {found}")
        return 1
    for bug in bugs:
        began = time.monotonic()
        found = found_with(bug)
        proof = is_proof(bug, found)
        missed += not proof
        wanted = "" if proof else f"(not by {bug.by}) "
        seconds = time.monotonic() - began
        print(f"{'caught' if proof else 'MISSED'}  {bug.name:52} {seconds:5.1f} s  {wanted}{found}", flush=True)
    print(f"{len(bugs) - missed} passed, {missed} failed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
