"""The resources that contexts may use."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


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
