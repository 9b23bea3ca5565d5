"""The suite on every Python there is here: `make test-pythons`, or `python -m tests.pythons [ARGUMENTS OF PYTEST]`.

Each Python gets an environment of its own below `.pythons`. Early patch releases count as Pythons of their own: a bug
of the compiler in 3.12.0 and 3.12.1 once ended every engine there. Later ones can be had with `uv python install 3.14`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
OLDEST: Final = (3, 11)
NAME: Final = re.compile(r"python3(\.\d+)?")


def main() -> int:
    found = pythons()
    print(f"{len(found)} found: {', '.join(found)}", flush=True)
    ended = {version: tested(version, python) for version, python in found.items()}
    for version, (verdict, seconds) in ended.items():
        print(f"Python {version:8} {verdict} ({seconds:.0f} s)")
    return int(any(verdict != "passed" for verdict, _ in ended.values()))


def pythons() -> dict[str, Path]:
    """By version, oldest first: what is in the PATH, and what pyenv and uv have installed."""
    home = Path.home()
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += [*(home / ".pyenv/versions").glob("*/bin"), *(home / ".local/share/uv/python").glob("*/bin")]
    found: dict[tuple[int, ...], Path] = {}
    for folder in folders:
        for program in sorted(folder.glob("python3*")):
            if NAME.fullmatch(program.name) and (version := version_of(program)) >= OLDEST:
                found.setdefault(version, program)
    return {".".join(map(str, version)): found[version] for version in sorted(found)}


def version_of(program: Path) -> tuple[int, ...]:
    """Nothing, if it does not run: pyenv puts programs into the PATH that only say what to install."""
    ask = "import sys; print(*sys.version_info[:3] if sys.prefix == sys.base_prefix else ())"
    said = subprocess.run([program, "-c", ask], capture_output=True, text=True, check=False)
    return tuple(map(int, said.stdout.split())) if said.returncode == 0 else ()


def tested(version: str, python: Path) -> tuple[str, float]:
    began = time.monotonic()
    print(f"\n== Python {version}", flush=True)
    environment = ROOT / ".pythons" / version
    inside = environment / "bin" / "python"
    pytest = sys.argv[1:] or ["-n", "8", "--dist=worksteal"]
    steps: dict[str, list[str | Path]] = {
        "cannot be installed": [inside, "-m", "pip", "install", "--quiet", "-e", f"{ROOT}[dev]"],
        "failed": [inside, "-m", "pytest", *pytest, "-m", "not long"],
    }
    if not inside.exists():  # with the pip of whoever runs this: Debian's Python has none to copy
        steps = {
            "has no venv": [python, "-m", "venv", "--clear", "--without-pip", environment],
            "gets no pip": [sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", "pip"],
            **steps,
        }
    for trouble, command in steps.items():
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            return trouble, time.monotonic() - began
    return "passed", time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
