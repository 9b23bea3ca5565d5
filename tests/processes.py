"""Python programs that tests start: processes as real as any, ten times as cheap.

An interpreter that imports hipq takes 0.1 to 0.4 seconds of a processor, and the tests start two thousand. So they are
forked from one that has imported it (`tests/warm.py`), with streams, arguments, environment and folder of their own.
Whatever that process could not give them starts as usual, and so does what tests how a program begins: those tests use
`subprocess`.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, AnyStr, Final

import msgspec

from tests.ending import at_the_end
from tests.warm import SIZE, Program

PIPE: Final = subprocess.PIPE
_FREE: Final = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""Variables that a process can heed which has begun."""
_DJANGO: Final = (
    "django.core.management.commands.migrate", "django.contrib.admin.options", "django.db.migrations.executor",
    "django.db.backends.sqlite3.base", "django.db.backends.postgresql.base",
)  # fmt: skip
"""What programs with Django's settings import too, and the end of other processes should not have to tidy up."""
_ADOPT: Final = 36
"""PR_SET_CHILD_SUBREAPER"""
_one_at_a_time: Final = threading.Lock()


class Popen(subprocess.Popen[AnyStr]):
    """`subprocess.Popen`, forked where that makes no difference."""

    def _execute_child(self, args: Any, executable: Any, preexec: Any, close: Any, *rest: Any) -> None:
        (pass_fds, folder, env, _, _, shell, in_read, in_write, out_read, out_write, err_read, err_write,
         _, gid, gids, uid, umask, session, group) = rest  # fmt: skip
        environment = dict(os.environ if env is None else env)
        ordinary = not (executable or preexec or pass_fds or shell or uid or gids) and close and gid is None
        words = list(map(os.fspath, args)) if ordinary and not isinstance(args, (str, bytes, os.PathLike)) else []
        folder = os.path.abspath(folder or os.curdir)
        streams = [given if given != -1 else usual for usual, given in enumerate((in_read, out_write, err_write))]
        if umask != -1 or not _can_be_forked(words, environment, folder, streams):
            super()._execute_child(args, executable, preexec, close, *rest)  # type: ignore[misc]
            return
        program = Program(words[1:], folder, environment, bool(session), group)
        with _one_at_a_time:
            self.pid = _forked(program, streams)
        self._child_created = True
        self._close_pipe_fds(in_read, in_write, out_read, out_write, err_read, err_write)  # type: ignore[attr-defined]


def run(
    command: Sequence[str | Path], *, input: Any = None, capture_output: bool = False, timeout: float | None = None,
    check: bool = False, **more: Any,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """`subprocess.run`."""
    if input is not None:
        more["stdin"] = PIPE
    if capture_output:
        more |= {"stdout": PIPE, "stderr": PIPE}
    process: Popen[str]
    with Popen(command, **more) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _can_be_forked(words: list[str], environment: dict[str, str], folder: str, streams: list[int]) -> bool:
    if sys.platform != "linux" or not words or words[0] != sys.executable or len(words) < 2:
        return False
    if words[1] not in ("-m", "-c") and (words[1].startswith("-") or not os.path.isfile(words[1])):
        return False
    if _heeded(environment) != _heeded(dict(os.environ)) or not os.path.isdir(folder):
        return False
    return all(os.path.exists(f"/proc/self/fd/{one}") for one in streams)


def _heeded(environment: dict[str, str]) -> dict[str, str]:
    """What an interpreter looks at once, as it begins."""
    found = ("PYTHON", "LC_", "LANG", "LD_", "COVERAGE_")
    return {name: value for name, value in environment.items() if name.startswith(found) and name not in _FREE}


def _forked(program: Program, streams: list[int]) -> int:
    more = _DJANGO if "DJANGO_SETTINGS_MODULE" in program.environment else ()
    warm = _warm(os.getpid(), msgspec.json.encode(_heeded(dict(os.environ)), order="sorted"), more)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_ADOPT, 1, 0, 0, 0)
    try:
        message = msgspec.msgpack.encode(program)
        socket.send_fds(warm, [SIZE.pack(len(message))], streams)
        warm.sendall(message)
        pid, _ = SIZE.unpack(warm.recv(SIZE.size, socket.MSG_WAITALL)), warm.recv(SIZE.size, socket.MSG_WAITALL)
    finally:
        libc.prctl(_ADOPT, 0, 0, 0, 0)
    return int(pid[0])


@cache
def _warm(_pid: int, _environment: bytes, modules: tuple[str, ...]) -> socket.socket:
    """One for a process that runs tests, and for each environment that changes what an interpreter is. It has imported
    these modules beside hipq's."""
    ours, theirs = socket.socketpair()
    environment = {name: value for name, value in os.environ.items() if name not in _FREE}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm.py")), str(theirs.fileno()), *modules],
            env=environment, pass_fds=[theirs.fileno()], cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def end() -> None:
        ours.close()
        process.wait()

    at_the_end(end)
    return ours
