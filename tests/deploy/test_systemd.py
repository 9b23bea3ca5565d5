"""The units under deploy/systemd, by systemd's own tools, and by the commands that they start."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from hipq.cli.main import cli

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS: Final = sorted(FOLDER.glob("*.service"))
INSTALLED: Final = "/opt/hipq/bin/hipq"
MOST_EXPOSED: Final = {"hipq-daemon.service": 35}
"""In tenths, of 100: handlers in a sandbox need namespaces and mounts. For the others it is 15."""


def command_line(unit: Path) -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    return shlex.split(line)


def analyzed(*words: str) -> subprocess.CompletedProcess[str]:
    if not (program := shutil.which("systemd-analyze")):
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_its_command_is_one_of_ours_with_options_that_there_are(unit: Path) -> None:
    program, name, *words = command_line(unit)
    assert program == INSTALLED
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    known = {one for param in command.params for one in (*param.opts, *param.secondary_opts)}
    assert [word for word in words if word.startswith("-") and word not in known] == []


def test_what_a_site_sets_for_the_daemon_is_not_refused() -> None:
    serve = cli.get_command(None, "serve")  # type: ignore[arg-type]
    assert serve is not None
    options = {f"HIPQ_SERVE_{str(param.name).upper()}" for param in serve.params}
    named = set(re.findall(r"HIPQ_SERVE_\w+", (FOLDER / "hipq-daemon.service").read_text()))
    assert "HIPQ_SERVE_DRAIN" in named <= options


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_reads_it_without_a_word(unit: Path, tmp_path: Path) -> None:
    here = shutil.which("hipq", path=str(Path(sys.executable).parent)) or sys.executable
    (tmp_path / unit.name).write_text(unit.read_text().replace(INSTALLED, here))
    done = analyzed("verify", "--man=no", str(tmp_path / unit.name))
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_it_is_hardened(unit: Path) -> None:
    most = MOST_EXPOSED.get(unit.name, 15)
    done = analyzed("security", "--offline=true", f"--threshold={most}", str(unit))
    assert done.returncode == 0, done.stdout[-200:]


def test_nothing_keeps_the_sandbox_of_handlers_from_working() -> None:
    """bubblewrap mounts a new /proc, which the kernel refuses where a part of the old one is covered."""
    text = (FOLDER / "hipq-daemon.service").read_text()
    for option in ("ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "ProtectHostname"):
        assert f"\n{option}=" not in text
    assert "RestrictNamespaces=user mnt pid net ipc uts" in text
