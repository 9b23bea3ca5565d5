"""Starting a context's process: in a sandbox, or, if handlers are trusted, under a guard."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from typing import Final

import msgspec

from hipq.errors import CannotRun
from hipq.sandbox import system_calls
from hipq.sandbox.bubblewrap import usable_sandbox
from hipq.sandbox.interpreters import HERE, INSIDE, command, interpreter
from hipq.sandbox.settings import ContextSettings, languages
from hipq.sandbox.spawner import Spawner

SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""Errors that mean that descriptors, memory or processes have run out for the moment."""
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_RESERVED: Final = 1 << 30
"""Bytes of memory that node reserves when it starts, and never uses."""
_CHANNEL: Final = "/channel"
"""Where PHP finds its channel, in a sandbox."""


class Started(msgspec.Struct):
    """The daemon's ends of a process that has begun to start."""

    popen: subprocess.Popen[bytes]
    asks: int
    """The descriptor on which requests are written."""
    answers: int
    """The descriptor on which replies are read."""
    stdin: int
    stdout: int
    stderr: int
    info: int = -1
    """The file in which bubblewrap writes the first process's id; -1 without a sandbox."""
    folder: str = ""
    """A folder to be removed afterwards."""


class _Channel(msgspec.Struct):
    """The private channel and the payloads: the daemon's ends, and how the process gets its own."""

    asks: int
    answers: int
    payloads: int
    far: list[int] = []
    """The process's ends: requests, payloads, replies. Empty if they are named pipes."""
    named: list[str] = []


class _Plan(msgspec.Struct):
    """The command to start, with its environment and descriptors."""

    words: list[str]
    environment: dict[str, str]
    passed: list[int]
    folder: str = "/"
    info: int = -1


def start(language: str, settings: ContextSettings, spawner: Spawner) -> Started:
    """Start a process. CannotRun says what is missing on this machine."""
    if not sys.platform.startswith("linux"):
        raise CannotRun("handlers in code run on Linux only")
    found = languages(settings)
    if language not in found:
        raise CannotRun(f"handlers in {language} need its interpreter, which is not installed here")
    if "python" not in found:
        raise CannotRun(f"{settings.interpreters.get('python', 'python')} is no Python, which starts every handler")
    with ExitStack() as theirs, ExitStack() as ours:
        folder = ""
        if settings.trust or language == "php":
            folder = spawner.scratch.folder()
            ours.callback(spawner.scratch.remove, folder)
        channel = _named(folder, ours) if language == "php" else _unnamed(ours, theirs)
        stdout, far_stdout = _pipe(ours, theirs)
        stderr, far_stderr = _pipe(ours, theirs)
        make = _trusted if settings.trust else _sandboxed
        plan = make(language, found, settings, channel, folder, ours, theirs)

        def begin() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                plan.words, stdin=subprocess.DEVNULL, stdout=far_stdout, stderr=far_stderr, env=plan.environment,
                pass_fds=plan.passed, cwd=plan.folder, start_new_session=True,
            )  # fmt: skip

        try:
            popen = spawner.start(begin)
        except OSError as error:
            if error.errno in SCARCE:
                raise
            raise CannotRun(f"no process could be started for a handler in {language}: {error}") from None
        for descriptor in (channel.asks, channel.answers, channel.payloads, stdout, stderr):
            os.set_blocking(descriptor, False)
        ours.pop_all()
        return Started(popen, channel.asks, channel.answers, channel.payloads, stdout, stderr, plan.info, folder)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """The two ends of a pipe, each closed by the stack it belongs to."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing


def _unnamed(ours: ExitStack, theirs: ExitStack) -> _Channel:
    far_asks, asks = _pipe(theirs, ours)
    far_payloads, payloads = _pipe(theirs, ours)
    answers, far_answers = _pipe(ours, theirs)
    return _Channel(asks, answers, payloads, [far_asks, far_payloads, far_answers])


def _named(folder: str, ours: ExitStack) -> _Channel:
    """A channel of named pipes for PHP, which cannot use a descriptor it did not open itself: not every PHP has
    php://fd."""
    found: dict[str, int] = {}
    # Opened for reading and writing, because a pipe opened for writing alone would need a reader that is there already.
    for name, flags in (("asks", os.O_RDWR), ("answers", os.O_RDONLY), ("payloads", os.O_RDWR)):
        path = os.path.join(folder, name)
        os.mkfifo(path)
        os.chmod(path, 0o666)  # the process may be another user, but nobody else gets into the folder
        found[name] = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
        ours.callback(os.close, found[name])
    named = [os.path.join(folder, name) for name in found]
    return _Channel(found["asks"], found["answers"], found["payloads"], named=named)


def _trusted(
    language: str, found: dict[str, str], settings: ContextSettings, channel: _Channel, folder: str, *_: ExitStack
) -> _Plan:
    launch = _launch(language, found, settings, channel, str(HERE), folder, None)
    guard = [launch[0], "-I", "-S", "-B", str(HERE / "guard.py"), str(os.getpid()), folder]
    environment = _environment(os.environ.get("PATH", _PATH), folder)
    return _Plan([*guard, *launch], environment, channel.far, folder)


def _sandboxed(
    language: str,
    found: dict[str, str],
    settings: ContextSettings,
    channel: _Channel,
    _folder: str,
    ours: ExitStack,
    theirs: ExitStack,
) -> _Plan:
    sandbox = usable_sandbox()
    info = _file(b"", ours)  # no pipe: bubblewrap dies writing to one nobody reads, and its children stay for ever
    calls = _file(system_calls.program(), theirs) if system_calls.program() else -1
    binds = _binds(language, found) | {path: f"{_CHANNEL}/{os.path.basename(path)}" for path in channel.named}
    options = sandbox.arguments(binds, settings.hidden, settings.scratch, settings.network, calls, info)
    listed = _file(b"".join(word.encode() + b"\0" for word in options), theirs)
    launch = _launch(language, found, settings, channel, INSIDE, _CHANNEL, sandbox.user())
    # In a file, not on its command line, which can be read from inside.
    words = [sandbox.path, "--args", str(listed), "--", *launch]
    passed = [number for number in (*channel.far, info, calls, listed) if number >= 0]
    return _Plan(words, _environment(_PATH, "/tmp"), passed, info=info)


def _environment(path: str, folder: str) -> dict[str, str]:
    """The whole environment of a handler and of the sandbox around it. Nothing of the daemon's is in it."""
    return {"PATH": path, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}


def _binds(language: str, found: dict[str, str]) -> dict[str, str]:
    """path outside -> path inside"""
    binds = interpreter("python", found["python"]).binds | interpreter(language, found[language]).binds
    if language == "php":
        binds["/etc/php"] = "/etc/php"  # which extensions it has
    return binds | {str(HERE): INSIDE}


def _launch(
    language: str,
    found: dict[str, str],
    settings: ContextSettings,
    channel: _Channel,
    programs: str,
    channel_folder: str,
    user: int | None,
) -> list[str]:
    program = interpreter(language, found[language])
    words = command(language, program.path if settings.trust else program.inside, programs, settings.memory)
    plan = {
        "channel": channel.far,
        "user": user,
        "limits": _limits(language, settings),
        "command": [*words, channel_folder] if channel.named else words,
    }
    path = interpreter("python", found["python"]).path
    return [path, "-I", "-S", "-B", f"{programs}/launch.py", json.dumps(plan)]


def _limits(language: str, settings: ContextSettings) -> dict[str, int]:
    """The limits of each process. The use of all together is watched from outside."""
    memory = settings.memory + (_RESERVED if language == "node" else 0)
    limits = {"CORE": 0, "DATA": memory, "NOFILE": settings.files, "FSIZE": settings.scratch}
    if not settings.trust:  # outside of a sandbox this would count all processes of the user
        limits["NPROC"] = settings.processes
        limits["MEMLOCK"] = 0  # MSG_ZEROCOPY's memory counts as locked, and as memory of no process
    return limits


def _file(content: bytes, owner: ExitStack) -> int:
    number = os.memfd_create("hipq")
    owner.callback(os.close, number)
    os.write(number, content)
    os.lseek(number, 0, os.SEEK_SET)
    return number
