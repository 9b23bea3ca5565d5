"""Starting a context's process: in a sandbox, or, if handlers are trusted, under a guard."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

import msgspec

from hipq.errors import CannotRun
from hipq.sandbox import system_calls
from hipq.sandbox.bubblewrap import usable_sandbox
from hipq.sandbox.interpreters import HERE, INSIDE, command, interpreter, languages
from hipq.sandbox.leftovers import Scratch
from hipq.sandbox.proxy import PORT, VARIABLES
from hipq.sandbox.settings import MODULES, ContextSettings

SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""Errors that mean that descriptors, memory or processes have run out for the moment."""
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_RESERVED: Final = 1 << 30
"""Bytes of memory that node reserves when it starts, and never uses."""
_CHANNEL: Final = "/channel"
"""Where PHP finds its channel, in a sandbox."""


class Spawner:
    """Starts processes in one thread, which lives as long as they may: the kernel ends them with the thread that
    started them, not with its process."""

    def __init__(self) -> None:
        self.scratch = Scratch()
        self._thread = ThreadPoolExecutor(1, "hipq-contexts")
        self._thread.submit(bool)  # begins the thread now: later there may be no room for one

    def start(self, language: str, settings: ContextSettings) -> Started:
        """Start a process. CannotRun says what is missing on this machine."""
        with ExitStack() as theirs, ExitStack() as ours:
            plan = _Plan(language, settings, self.scratch, ours, theirs)
            stdout, far_stdout = _pipe(ours, theirs)
            stderr, far_stderr = _pipe(ours, theirs)
            words = plan.trusted() if settings.trust else plan.sandboxed()

            def begin() -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=far_stdout, stderr=far_stderr, env=plan.environment,
                    pass_fds=plan.passed, cwd=plan.folder if settings.trust else "/", start_new_session=True,
                )  # fmt: skip

            try:
                popen = self._thread.submit(begin).result()
            except OSError as error:
                if error.errno in SCARCE:
                    raise
                raise CannotRun(f"no process could be started for a handler in {language}: {error}") from None
            for descriptor in (plan.asks, plan.answers, plan.payloads, stdout, stderr):
                os.set_blocking(descriptor, False)
            ours.pop_all()
            return Started(
                popen, plan.asks, plan.answers, plan.payloads, stdout, stderr, plan.info, plan.folder, plan.link
            )

    def close(self) -> None:
        """End the thread, and with it every process that still runs."""
        self._thread.shutdown()


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
    link: socket.socket | None = None
    """What hands over the socket on which its proxy listens, if it has one."""


class _Plan:
    """How one process is started: its channel, and its command with environment and descriptors."""

    def __init__(
        self, language: str, settings: ContextSettings, scratch: Scratch, ours: ExitStack, theirs: ExitStack
    ) -> None:
        if not sys.platform.startswith("linux"):
            raise CannotRun("handlers in code run on Linux only")
        found = languages(settings)
        if language not in found:
            raise CannotRun(f"handlers in {language} need its interpreter, which is not installed here")
        if "python" not in found:
            raise CannotRun(f"{settings.interpreters.get('python', 'python')} is no Python, which starts every handler")
        self._language, self._settings = language, settings
        self._ours, self._theirs = ours, theirs
        self._python = interpreter("python", found["python"])
        self._program = interpreter(language, found[language])
        self.info, self.folder = -1, ""
        self.link: socket.socket | None = None
        self.environment: dict[str, str] = {}
        self.passed: list[int] = []
        """All descriptors that the process gets."""
        self._named: list[str] = []
        """The channel's named pipes, if it has any."""
        if settings.trust or language == "php":
            self.folder = scratch.folder()
            ours.callback(scratch.remove, self.folder)
        if language == "php":
            self._open_named()
        else:
            far_asks, self.asks = _pipe(theirs, ours)
            far_payloads, self.payloads = _pipe(theirs, ours)
            self.answers, far_answers = _pipe(ours, theirs)
            self.passed = [far_asks, far_payloads, far_answers]
        self._channel = list(self.passed)
        """The process's ends of its channel, unless they have names: requests, payloads, replies."""

    def _open_named(self) -> None:
        """A channel of named pipes for PHP, of which not every build has php://fd for a descriptor it inherits."""

        def pipe(name: str, flags: int) -> int:
            path = os.path.join(self.folder, name)
            os.mkfifo(path)
            os.chmod(path, 0o666)  # the process may be another user, but nobody else gets into the folder
            descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
            self._ours.callback(os.close, descriptor)
            self._named.append(path)
            return descriptor

        # For reading and writing, because a pipe opened for writing alone would need a reader that is there already.
        self.asks, self.payloads = pipe("asks", os.O_RDWR), pipe("payloads", os.O_RDWR)
        self.answers = pipe("answers", os.O_RDONLY)

    def trusted(self) -> list[str]:
        self.environment = _environment(os.environ.get("PATH", _PATH), self.folder)
        if self._settings.modules:  # where node looks, as it runs in this folder
            os.symlink(self._settings.modules, os.path.join(self.folder, MODULES))
        guard = [self._python.path, "-I", "-S", "-B", str(HERE / "guard.py"), str(os.getpid()), self.folder]
        return [*guard, *self._launch(self._program.path, str(HERE), self.folder, None)]

    def sandboxed(self) -> list[str]:
        sandbox, settings = usable_sandbox(), self._settings
        self.environment = _environment(_PATH, "/tmp")
        launch = self._launch(self._program.inside, INSIDE, _CHANNEL, sandbox.user())
        # no pipe: bubblewrap dies writing to one nobody reads, and its children stay for ever
        self.info = self._file(b"", self._ours)
        calls = self._file(system_calls.program(), self._theirs) if system_calls.program() else -1
        binds = self._python.binds | self._program.binds | {str(HERE): INSIDE}
        if self._language == "php":
            binds["/etc/php"] = "/etc/php"  # which extensions it has
        if settings.modules:
            binds[settings.modules] = f"/{MODULES}"  # where node looks, as it runs in /tmp
        binds |= {path: f"{_CHANNEL}/{os.path.basename(path)}" for path in self._named}
        options = sandbox.arguments(
            binds, settings.hidden, settings.scratch, settings.network, calls, self.info, bool(settings.hosts)
        )
        # In a file, not on its command line, which can be read from inside.
        listed = self._file(b"".join(word.encode() + b"\0" for word in options), self._theirs)
        return [sandbox.path, "--args", str(listed), "--", *launch]

    def _launch(self, program: str, programs: str, channel: str, user: int | None) -> list[str]:
        """The command that gives up what the handler must not have, and then becomes its interpreter."""
        words = command(self._language, program, programs, self._settings.memory)
        plan = {
            "channel": self._channel,
            "variables": self._variables(),
            "proxy": [PORT, self._way_out()] if self._has_proxy else None,
            "user": user,
            "limits": self._limits(),
            "first": 0 if self._settings.trust else 1,
            "command": [*words, channel] if self._named else words,
        }
        return [self._python.path, "-I", "-S", "-B", f"{programs}/launch.py", json.dumps(plan)]

    def _variables(self) -> int:
        """The file that has the handler's own variables and secrets; -1 if it has none. What starts before a handler
        must not have them: neither bubblewrap, which is outside of the sandbox, nor any command line."""
        own = {**self._settings.variables, **self._settings.secrets.values}
        if self._has_proxy:
            own = {**VARIABLES, **own}
        return self._file(msgspec.json.encode(own), self._theirs) if own else -1

    @property
    def _has_proxy(self) -> bool:
        return bool(self._settings.hosts) and not self._settings.trust

    def _way_out(self) -> int:
        """The process's end of what it hands its listening socket over by."""
        self.link, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._ours.callback(self.link.close)
        self._theirs.callback(far.close)
        self.passed.append(far.fileno())
        return far.fileno()

    def _limits(self) -> dict[str, int]:
        """The limits of each process. The use of all together is watched from outside."""
        settings = self._settings
        memory = settings.memory + (_RESERVED if self._language == "node" else 0)
        # The kernel asks no limit but 1 before it hands a picture of a process, secrets and all, to a program that
        # takes such (systemd-coredump, apport); and to a file it writes none of 1 byte.
        limits = {"CORE": 1, "DATA": memory, "NOFILE": settings.files, "FSIZE": settings.scratch}
        if not settings.trust:  # outside of a sandbox this would count all processes of the user
            limits["NPROC"] = settings.processes
            limits["MEMLOCK"] = 0  # MSG_ZEROCOPY's memory counts as locked, and as memory of no process
        return limits

    def _file(self, content: bytes, owner: ExitStack) -> int:
        number = os.memfd_create("hipq")
        owner.callback(os.close, number)
        os.write(number, content)
        os.lseek(number, 0, os.SEEK_SET)
        self.passed.append(number)
        return number


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """The two ends of a pipe, each closed by the stack it belongs to."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing


def _environment(path: str, folder: str) -> dict[str, str]:
    """The whole environment of a handler and of the sandbox around it. Nothing of the daemon's is in it."""
    return {"PATH": path, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
