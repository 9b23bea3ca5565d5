"""What a run found, as it is kept: `docs/benchmarks.json`, from which the report is made."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from bench.lines import Line
from bench.peers.company import Described, Failure


class Found(NamedTuple):
    """A line, and on which store."""

    store: str
    line: Line


class Results:
    def __init__(self) -> None:
        self.lines: list[Found] = []
        self.peers: list[Described] = []
        self.failures: list[Failure] = []
        self.broken: list[str] = []
        """Measurements that mean nothing: the run fails."""
        self.versions: dict[str, str] = {}
        self.machine: dict[str, Any] = {}

    def describe(self, began: datetime, load: float, minutes: float, stolen: float, quick: bool) -> None:
        self.versions |= {
            "hipq": version("hipq"),
            "Python": platform.python_version(),
            "SQLite": sqlite3.sqlite_version,
            "psycopg": version("psycopg"),
        }
        self.machine = {
            "date": f"{began:%d %B %Y}".lstrip("0"),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "load": round(load, 1),
            "minutes": round(minutes, 1),
            "steal_percent": round(stolen, 1),
            "quick": quick,
        }

    def save(self, file: Path) -> None:
        file.parent.mkdir(exist_ok=True)
        kept = {
            "machine": self.machine,
            "versions": self.versions,
            "lines": [
                {"store": store} | line._asdict() | {"hipq": round(line.hipq, 3), "raw": round(line.raw, 3)}
                for store, line in self.lines
            ],
            "peers": [peer._asdict() for peer in self.peers],
            "failures": [failure._asdict() for failure in self.failures],
            "broken": self.broken,
        }
        file.write_text(json.dumps(kept, indent=1) + "\n")

    @classmethod
    def load(cls, file: Path) -> Results:
        kept, results = json.loads(file.read_text()), cls()
        results.lines = [Found(line.pop("store"), Line(**line)) for line in kept["lines"]]
        results.peers = [Described(**peer) for peer in kept["peers"]]
        results.failures = [Failure(**failure) for failure in kept["failures"]]
        results.broken, results.versions, results.machine = kept["broken"], kept["versions"], kept["machine"]
        return results

    def summary(self) -> str:
        wanted = [found for found in self.lines if found.line.target]
        missed = [found for found in wanted if not found.line.met]
        peers = ", ".join(f"{peer.name} {peer.version} ({peer.store})" for peer in self.peers)
        return "\n".join(
            [
                f"{len(wanted) - len(missed)} of {len(wanted)} targets met",
                *(f"  MISSED {store}: {_in_short(line)}" for store, line in missed),
                *(f"  not measured: {name} ({store}): {reason}" for name, store, reason in self.failures),
                *(f"  BROKEN {reason}" for reason in self.broken),
                ", ".join(f"{name} {number}" for name, number in self.versions.items()),
                *([f"peers: {peers}"] if peers else []),
                f"{self.machine['cores']} cores, load {self.machine['load']} before, "
                f"{self.machine['minutes']} minutes, steal {self.machine['steal_percent']} %",
            ]
        )


def _in_short(line: Line) -> str:
    return f"{line.name}, against {line.against}: {line.ratio:.2f}, wanted {line.wanted}"
