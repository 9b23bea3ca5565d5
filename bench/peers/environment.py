"""A peer's virtual environment: made and filled if it is not there, or wants something else now."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.peers import ENVIRONMENTS, ROOT, Listed, PeerFailed

PATIENCE = 300.0
"""Seconds an installation may take."""


def install(listed: Listed) -> Path:
    """The python of the peer's environment."""
    folder = ENVIRONMENTS / listed.environment
    python, installed = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(listed.requires)
    if installed.exists() and installed.read_text() == wanted:
        return python
    print(f"installing {listed.name} ({', '.join(listed.requires)})", file=sys.stderr, flush=True)
    _made(_python(listed.python), folder)
    _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *listed.requires)
    installed.write_text(wanted)
    return python


def _made(program: str, folder: Path) -> None:
    _run(program, "-m", "venv", "--clear", str(folder))


def in_a_line(reason: str) -> str:
    """The last line, which says most, without what is of this machine only: it goes into the report."""
    last = (reason.strip() or "no reason given").splitlines()[-1].removeprefix("ERROR: ")
    return re.sub(r"https?://\S+", "(a URL)", last).replace(f"{ROOT}/", "")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"does not install: not within {PATIENCE:.0f} s") from None
    if done.returncode:
        raise PeerFailed(f"does not install: {in_a_line(done.stderr.strip() or done.stdout)}")


def _python(version: str) -> str:
    """A Python of that minor version that does start: a name on PATH may be one of pyenv's empty promises."""
    if not version:
        return sys.executable
    for program in _candidates(version):
        command = [program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == version:
            return program
    raise PeerFailed(f"needs Python {version}: no python{version} on PATH, nor under ~/.pyenv/versions")


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    if found := shutil.which(f"python{version}"):
        yield found
    yield from map(str, sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python")))
