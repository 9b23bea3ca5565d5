"""Forks Python programs from a process that has imported hipq. `tests/processes.py` starts this file and asks it.

It asks by its end of a socket: standard input, output and error, and a `Program`. The answer is a process id. The one
who asked becomes the parent of that process: who forks it ends at once, and orphans of this process are adopted there.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import os
import pkgutil
import runpy
import socket
import struct
import sys
import threading
import time
import types
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

SIZE: Final = struct.Struct("q")
MODULES: Final = (
    "hipq", "hipq.engine.loop", "hipq.engine.executor", "hipq.stores.sqlite.store", "hipq.stores.postgres.store",
    "hipq.doctor.diagnose", "hipq.daemon.daemon", "hipq.daemon.http.serving", "hipq.dashboard.application",
    "hipq.callback.asgi", "hipq.client",
)  # fmt: skip
"""Beside the commands: what programs would import one by one, each for itself."""


class Program(NamedTuple):
    """What a process is to be."""

    words: list[str]
    """Python's own: -m and a module, -c and a program, or a file; then the arguments."""
    folder: str
    environment: dict[str, str]
    session: bool
    group: int
    """Of processes: 0 for one of its own, -1 for that of whoever asks."""


def serve(asked: socket.socket) -> Program:
    """Returns in processes that were forked. Ends when nobody can ask any more."""
    while True:
        head, fds, _, _ = socket.recv_fds(asked, SIZE.size, 3)
        if not head:
            sys.exit()
        (size,) = SIZE.unpack(head)
        program = msgspec.msgpack.decode(_exactly(asked, size), type=Program)
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid:
                asked.sendall(SIZE.pack(pid))
                os._exit(0)
            os.close(writer)
            os.read(reader, 1)  # until it is adopted
            os.close(reader)
            asked.close()
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
            for fd in fds:
                os.close(fd)
            return program
        os.waitpid(between, 0)
        for fd in (writer, reader, *fds):
            os.close(fd)
        asked.sendall(SIZE.pack(between))  # adopted by now


def _exactly(asked: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += asked.recv(size - len(found))
    return found


def become(program: Program, path: list[str]) -> None:
    """What an interpreter does before it runs the program."""
    if program.session:
        os.setsid()
    if program.group >= 0:
        os.setpgid(0, program.group)
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)
    time.tzset()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.orig_argv = [sys.executable, *program.words]
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
    importlib.invalidate_caches()
    sys.path_importer_cache.clear()
    sys.excepthook = sys.__excepthook__ = _without_these_lines
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        stream = _stream(fd, mode, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _without_these_lines(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    _say(kind, error.with_traceback(trace), trace)


_say: Final = sys.__excepthook__


def _stream(fd: int, mode: str, like: Any) -> Any:
    buffer: Any = open(fd, f"{mode}b", closefd=False)  # noqa: SIM115
    raw = buffer.raw
    raw.name = like.name
    stream = io.TextIOWrapper(
        buffer, like.encoding, like.errors, None if mode == "r" else "\n",
        line_buffering=(raw.isatty() or fd == 2) and not like.write_through, write_through=like.write_through,
    )  # fmt: skip
    stream.mode = mode  # type: ignore[misc]
    return stream


def run(words: list[str]) -> None:
    kind, *rest = words
    if kind == "-m":
        name, *arguments = rest
        sys.argv[:] = ["-m", *arguments]
        sys.path.insert(0, os.getcwd())
        is_package = hasattr(sys.modules.get(name), "__path__")
        sys.modules.pop(f"{name}.__main__" if is_package else name, None)  # else it is warned that it is there
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
    elif kind == "-c":
        text, *arguments = rest
        sys.argv[:] = ["-c", *arguments]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(text, "<string>", "exec"), main.__dict__)
    else:
        sys.argv[:] = words
        sys.path.insert(0, str(Path(kind).absolute().parent))
        runpy.run_path(kind, run_name="__main__")


def main() -> None:
    asked = socket.socket(fileno=int(sys.argv[1]))
    del sys.path[0]  # the folder of this file, which has a `django` and a `celery`
    path = sys.path[:]
    commands = importlib.import_module("hipq.cli").__path__
    names = [f"hipq.cli.{one.name}" for one in pkgutil.iter_modules(commands)]
    for name in (*MODULES, *names, *sys.argv[2:]):
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork has only the thread that forks"
    gc.collect()
    gc.freeze()
    program = serve(asked)
    become(program, path)
    status: Any = None
    try:
        run(program.words)
    except SystemExit as end:
        status = end.code
        if not isinstance(status, int | None):
            raise
    leave(status or 0)


def leave(status: int) -> None:
    """End as an interpreter does, but do not take apart what it has imported: that copies the memory which a fork
    shares, and took 28 of 34 ms. Returns if what was printed cannot be written: an interpreter has words for that."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status & 0xFF)
    sys.exit(status)


if __name__ == "__main__":
    main()
