"""One interpreter process with all its descendants: watched from outside, and ended without remains."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hipq.sandbox.addresses import Allowed
from hipq.sandbox.proxy import ForwardProxy
from hipq.sandbox.settings import ContextSettings
from hipq.sandbox.starting import Spawner

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_TABLES: Final = "VmPTE:"
"""The kernel's page tables of a process: a page for every 2 MB that is touched, even where nothing is kept."""
_OWN: Final = ("RssAnon:", "RssShmem:", _TABLES)
_MOST: Final = 4096
"""The most processes that are looked at, so that a fork bomb does not keep the daemon busy."""
_GRACE: Final = 10.0
"""Seconds in which killed processes should be gone; then harder means are used."""
MOST_FILES: Final = 100_000
"""Files in its scratch folders: even empty ones take memory, which no limit on bytes counts."""
_SCRATCH: Final = ("/tmp", "/dev/shm")
_SETTLING: Final = 0.25
"""Seconds that processes started by a job may take to end after it."""


class ProcessUsage(NamedTuple):
    memory: int = 0
    """Bytes of memory, of all processes together."""
    processes: int = 0
    cpu: float = 0.0
    """Seconds of processor time, of living processes and of the children they have waited for."""


class ScratchUse(NamedTuple):
    """The use of /tmp and /dev/shm."""

    full: float = 0.0
    """How full the fuller one is, from 0 to 1."""
    files: int = 0
    """Files in both."""
    bytes: int = 0


class Process:
    """An interpreter that has begun to start. Its first reply says when it is ready."""

    def __init__(self, language: str, settings: ContextSettings, spawner: Spawner) -> None:
        self._started = spawner.start(language, settings)
        self._scratch = spawner.scratch
        self._allowed = Allowed(settings.http_allow).within(settings.hosts)
        self._proxy: ForwardProxy | None = None
        self._lock = threading.Lock()
        """Held to signal and to give up process ids: otherwise a signal could reach a process with a reused id."""
        self.asks, self.answers = self._started.asks, self._started.answers
        self.stdin, self.stdout, self.stderr = self._started.stdin, self._started.stdout, self._started.stderr
        self.handle = os.pidfd_open(self._started.popen.pid)
        """A descriptor that is readable when the process has ended."""
        self._first = self._started.popen.pid if self._started.info < 0 else 0
        """The ancestor of all its processes: the guard, or the first one inside. 0: not known yet."""
        self._first_handle = -1
        self._closed = False
        self.kept = 0
        """Bytes that it uses while it is frozen, its files included."""

    @property
    def pid(self) -> int:
        """The interpreter's process id as the daemon sees it; 0 if it is gone, or not there yet."""
        found = process_tree(self._first) if self._first else []
        return found[1] if len(found) > 1 else 0

    @property
    def ended(self) -> bool:
        return self._closed or _readable(self.handle, 0)

    def settle(self) -> None:
        """Read the process ids, after the first reply: by then bubblewrap has written them."""
        if self._started.info < 0:
            return
        if self._started.link:
            _, (listener, *_), _, _ = socket.recv_fds(self._started.link, 1, 1)
            self._started.link.close()
            self._proxy = ForwardProxy(socket.socket(fileno=listener), self._allowed)
        if self._started.folder:  # its pipes have been opened
            self._scratch.remove(self._started.folder)
            self._started.folder = ""
        info = os.pread(self._started.info, 65536, 0)
        os.close(self._started.info)
        self._started.info = -1
        with self._lock:
            self._first = int(msgspec.json.decode(info)["child-pid"])
            self._first_handle = os.pidfd_open(self._first)

    def usage(self, memory: int) -> ProcessUsage:
        """The resources of all its processes. The memory is exact if it may exceed `memory`."""
        if not self._first:
            return ProcessUsage()
        found = usage(self._first)
        if found.memory <= memory:
            return found
        return found._replace(memory=shared_memory(self._first))

    def scratch(self, pid: int = 0) -> ScratchUse:
        """The use of its scratch folders; zero if they cannot be read."""
        try:
            if self._first_handle < 0:
                return ScratchUse()
            found = [os.statvfs(f"/proc/{pid or self.pid}/root{folder}") for folder in _SCRATCH]
        except OSError:
            return ScratchUse()
        return ScratchUse(
            max(1 - one.f_bfree / max(one.f_blocks, 1) for one in found),
            sum(one.f_files - one.f_ffree for one in found),
            sum((one.f_blocks - one.f_bfree) * one.f_frsize for one in found),
        )

    def freeze(self) -> bool:
        """Stop the process while it has nothing to do. False if jobs left processes or files that disturb others."""
        found, end = process_tree(self._first), time.monotonic() + _SETTLING
        while len(found) > 2 and at_rest(self._first)[0] > 2 and time.monotonic() < end:
            time.sleep(0.001)  # the last command of a shell is just about to end
        pid = found[1] if len(found) > 1 else 0
        if not pid or not _signal(pid, signal.SIGSTOP) or not self._signal_first(signal.SIGSTOP):
            return False
        left = self.scratch(pid)
        count, memory = at_rest(self._first)
        self.kept = memory + left.bytes
        return count == 2 and left.full < 0.5 and left.files < MOST_FILES / 2

    def thaw(self) -> None:
        self._signal_first(signal.SIGCONT)
        if pid := self.pid:
            _signal(pid, signal.SIGCONT)

    def _signal_first(self, number: signal.Signals) -> bool:
        """Signal the first process in a sandbox, which runs as the handler's user, who can write to its memory. A
        guard is not the handler's, and has to notice when the daemon is gone."""
        if self._first_handle < 0:
            return True
        try:
            signal.pidfd_send_signal(self._first_handle, number)
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """Kill all of it at once; from any thread. It is gone when `handle` is readable."""
        with self._lock:
            if self._closed:
                return
            inside = self._first_handle >= 0
            target = self._first_handle if inside else self.handle
            try:  # the first process inside takes all others along; a guard kills them itself, and then ends
                signal.pidfd_send_signal(target, signal.SIGKILL if inside or not self._first else signal.SIGTERM)
            except ProcessLookupError:
                pass

    def wait(self, seconds: float) -> int | None:
        """The exit status; None if it has not ended."""
        try:
            return self._started.popen.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """End the process, wait until nothing is left of it, and free all its resources."""
        if self._closed:
            return
        self.kill()
        if self._proxy:
            self._proxy.close()
        if self._started.link:
            self._started.link.close()
        if self.wait(_GRACE) is None:
            for pid in reversed(process_tree(self._first)) if self._first else []:
                _signal(pid, signal.SIGKILL)
            self._started.popen.kill()
            self._started.popen.wait()
        if self._first_handle >= 0:
            _readable(self._first_handle, _GRACE)  # the kernel lets the first process inside end last
        with self._lock:
            self._closed = True
            for number in (
                self.asks, self.answers, self.stdin, self.stdout, self.stderr,
                self.handle, self._first_handle, self._started.info,
            ):  # fmt: skip
                if number >= 0:
                    os.close(number)
        if self._started.folder:
            self._scratch.remove(self._started.folder)


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _readable(number: int, seconds: float) -> bool:
    poll = select.poll()  # select() cannot take descriptors above 1023
    poll.register(number, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


# -- a process and its descendants in /proc --------------------------------------------------------------------------
def process_tree(first: int) -> list[int]:
    """The process and all its descendants, parents first."""
    found = [first]
    for pid in found:
        if len(found) > _MOST:
            break
        found += _children(pid)
    return found


def usage(first: int) -> ProcessUsage:
    """The resources in use. Shared memory is counted for each process: see `shared_memory`."""
    memory, ticks, pids = 0, 0, process_tree(first)
    for pid in pids:
        memory += _sum(_lines(pid, "status"), *_OWN)
        ticks += sum(map(int, "".join(_lines(pid, "stat")).rpartition(")")[2].split()[11:15]))
    return ProcessUsage(memory, len(pids), ticks / _TICKS)


def at_rest(first: int) -> tuple[int, int]:
    """How many of the processes are not zombies, and the memory of all. One file of each is read, because this is
    called after every batch."""
    count = memory = 0
    for pid in process_tree(first):
        lines = _lines(pid, "status")
        count += bool(lines) and not any(line.startswith(("State:\tZ", "State:\tX")) for line in lines)
        memory += _sum(lines, *_OWN)
    return count, memory


def shared_memory(first: int) -> int:
    """Bytes that all processes use, exactly and slowly: shared memory is counted once."""
    return sum(
        _sum(_lines(pid, "smaps_rollup"), "Pss_Anon:", "Pss_Shmem:") + _sum(_lines(pid, "status"), _TABLES)
        for pid in process_tree(first)
    )


def _sum(lines: list[str], *names: str) -> int:
    return sum(int(line.split()[1]) for line in lines if line.startswith(names)) << 10


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []  # it has ended
    return [int(word) for task in tasks for line in _lines(pid, f"task/{task}/children") for word in line.split()]


def _lines(pid: int, file: str) -> list[str]:
    """The lines of a file in /proc; none if the process has ended. Its name may be bytes that are no text."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace").split("\n")
    except OSError:
        return []
