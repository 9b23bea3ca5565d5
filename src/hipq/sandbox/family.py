"""A process and its descendants, as /proc shows them, and what they use up together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_TABLES: Final = "VmPTE:"
"""The kernel's tables of a process's memory: a page for every 2 MB that is looked at, even where nothing is kept."""
_OWN: Final = ("RssAnon:", "RssShmem:", _TABLES)
_MOST: Final = 4096
"""Processes that are looked at: a fork bomb must not keep us busy."""


class ProcessUsage(msgspec.Struct, frozen=True):
    memory: int = 0
    """Bytes, of all together."""
    processes: int = 0
    cpu: float = 0.0
    """Seconds, of those that are alive and of those they have waited for."""


def family(first: int) -> list[int]:
    """It and all below it, parents first."""
    found = [first]
    for pid in found:
        if len(found) > _MOST:
            break
        found += _children(pid)
    return found


def living(first: int) -> int:
    """How many of them are more than an entry in a table."""
    return sum(_state(pid) not in ("Z", "X", "") for pid in family(first))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def usage(first: int) -> ProcessUsage:
    """Memory that several have in common is counted for each: see `shared_memory`."""
    memory, cpu, pids = 0, 0.0, family(first)
    for pid in pids:
        memory += _kilobytes(f"/proc/{pid}/status", *_OWN)
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        cpu += sum(map(int, fields[11:15])) / _TICKS
    return ProcessUsage(memory, len(pids), cpu)


def at_rest(first: int) -> tuple[int, int]:
    """How many of them are more than an entry in a table, and the memory of all. For those that have been stopped:
    one file of each is read, as this is asked after every batch."""
    count = memory = 0
    for pid in family(first):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue  # it has ended
        count += not any(line.startswith(("State:\tZ", "State:\tX")) for line in lines)
        memory += _sum(lines, *_OWN)
    return count, memory


def shared_memory(first: int) -> int:
    """Bytes that all together use, exactly and slowly: what several have in common is counted once."""
    return sum(
        _kilobytes(f"/proc/{pid}/smaps_rollup", "Pss_Anon:", "Pss_Shmem:") + _kilobytes(f"/proc/{pid}/status", _TABLES)
        for pid in family(first)
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
