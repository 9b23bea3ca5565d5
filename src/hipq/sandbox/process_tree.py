"""A process and its descendants in /proc, and the resources they use together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_TABLES: Final = "VmPTE:"
"""The kernel's page tables of a process: a page for every 2 MB that is touched, even where nothing is kept."""
_OWN: Final = ("RssAnon:", "RssShmem:", _TABLES)
_MOST: Final = 4096
"""The most processes that are looked at, so that a fork bomb does not keep the daemon busy."""


class ProcessUsage(msgspec.Struct, frozen=True):
    memory: int = 0
    """Bytes of memory, of all processes together."""
    processes: int = 0
    cpu: float = 0.0
    """Seconds of processor time, of living processes and of the children they have waited for."""


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
    memory, cpu, pids = 0, 0.0, process_tree(first)
    for pid in pids:
        memory += _kilobytes(f"/proc/{pid}/status", *_OWN)
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        cpu += sum(map(int, fields[11:15])) / _TICKS
    return ProcessUsage(memory, len(pids), cpu)


def at_rest(first: int) -> tuple[int, int]:
    """How many of the processes are not zombies, and the memory of all. One file of each is read, because this is
    called after every batch."""
    count = memory = 0
    for pid in process_tree(first):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue  # it has ended
        count += not any(line.startswith(("State:\tZ", "State:\tX")) for line in lines)
        memory += _sum(lines, *_OWN)
    return count, memory


def shared_memory(first: int) -> int:
    """Bytes that all processes use, exactly and slowly: shared memory is counted once."""
    return sum(
        _kilobytes(f"/proc/{pid}/smaps_rollup", "Pss_Anon:", "Pss_Shmem:") + _kilobytes(f"/proc/{pid}/status", _TABLES)
        for pid in process_tree(first)
    )


def _kilobytes(file: str, *names: str) -> int:
    try:
        return _sum(Path(file).read_text().splitlines(), *names)
    except (OSError, ValueError, IndexError):
        return 0  # it has ended


def _sum(lines: list[str], *names: str) -> int:
    return sum(int(line.split()[1]) for line in lines if line.startswith(names)) << 10


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except OSError:
        pass  # it has ended
    return found
