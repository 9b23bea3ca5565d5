"""Processes that are forked from a warm one are what a cold start would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests import processes

LOOK: Final = """
import os, signal, sys, threading
print(sys.argv, sys.orig_argv, sys.path, sys.dont_write_bytecode, __name__, sep="\\n")
print(sys.flags, os.getcwd(), os.getppid(), os.umask(0), threading.active_count(), sep="\\n")
print(*sorted(os.environ.items()), sorted(os.listdir("/proc/self/fd")), sep="\\n")
for one in (sys.stdin, sys.stdout, sys.stderr):
    print(one.name, one.encoding, one.errors, one.mode, one.line_buffering)
print([signal.getsignal(one) for one in (2, 13, 15, 17)], os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())
print(sys.stdin.read())
"""
PROGRAMS: Final = {
    "what it finds": ["-c", LOOK, "a", "b"],
    "a file": ["look.py", "a"],
    "a module": ["-m", "look", "a"],
    "an exit status": ["-c", "import sys; print('left', file=sys.stderr); sys.exit(3)"],
    "a sentence at the exit": ["-c", "import sys; sys.exit('no')"],
    "an exception": ["-c", "1 / 0"],
    "a signal": ["-c", "import os; os.kill(os.getpid(), 9)"],
    "what is done at the exit": ["-c", "import atexit; atexit.register(print, 'at the exit'); print('before')"],
    "a thread that goes on": [
        "-c", "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('went on'))).start()",
    ],
    "a command": ["-m", "hipq", "job", "list", "--db", "sqlite:///gone.db"],
    "bad usage": ["-m", "hipq.cli.main", "jub"],
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_forked_program_is_what_a_cold_one_is(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "more"))
    monkeypatch.setenv("HIPQ_TEST_ONLY", "new")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    command = [sys.executable, *PROGRAMS[program]]
    warm, cold = (
        run(
            command,
            input="typed\n",
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=dict(os.environ),
            start_new_session=True,
        )
        for run in (processes.run, subprocess.run)
    )
    assert warm.stdout.splitlines() == cold.stdout.splitlines()
    assert (warm.returncode, warm.stderr) == (cold.returncode, cold.stderr)
    assert warm.stdout or warm.stderr or warm.returncode


def test_it_is_forked_and_is_a_child_of_its_own() -> None:
    code = "import sys; print('hipq.daemon.daemon' in sys.modules, flush=True); sys.stdin.read()"
    started = [
        processes.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
        )
        for _ in range(3)
    ]
    for one in started:
        assert one.stdout
        assert one.stdout.readline() == "True\n"
        assert os.getpgid(one.pid) == one.pid
        assert one.poll() is None
    started[0].send_signal(signal.SIGTERM)
    started[1].kill()
    assert (started[0].wait(60), started[1].wait(60)) == (-signal.SIGTERM, -signal.SIGKILL)
    assert started[2].communicate(timeout=60)[0] == ""
    assert started[2].returncode == 0
    assert len({one.pid for one in started}) == 3


def test_what_an_interpreter_looks_at_as_it_begins_starts_it_cold() -> None:
    command = [sys.executable, "-c", "import sys; print(sys.flags.utf8_mode, 'hipq' in sys.modules)"]
    done = processes.run(command, env=os.environ | {"PYTHONUTF8": "1"}, capture_output=True, text=True, check=True)
    assert done.stdout == "1 False\n"
