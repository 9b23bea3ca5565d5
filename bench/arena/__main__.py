"""`python -m bench.arena`: hipq beside other queues on PostgreSQL, while things happen that happen in production."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.arena.cells import CELLS
from bench.arena.entrants import NAMES, Entrant, entrant
from bench.arena.match import FULL, HANDS, QUICK, WORKERS, Pace, played
from bench.peers import ENVIRONMENTS, PeerFailed
from bench.peers.environment import in_a_line


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.arena", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds a cell: to see that it runs")
    parser.add_argument("--systems", default=",".join(NAMES), help="which, with commas in between")
    parser.add_argument("--cells", default=",".join(cell.name for cell in CELLS), help="which, with commas in between")
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    chosen = parser.parse_args()
    pace, cells = QUICK if chosen.quick else FULL, chosen.cells.split(",")
    if unknown := {*chosen.systems.split(",")} - {*NAMES} or {*cells} - {cell.name for cell in CELLS}:
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its processes must not outlive it
    began, load = time.monotonic(), os.getloadavg()[0]
    ready, failures = _ready(chosen.systems.split(","))
    found = {one.name: _played(one, cells, pace) for one in ready}
    report = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": chosen.quick,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "pace": pace._asdict() | {"workers": WORKERS, "hands": HANDS},
        "machine": f"{os.cpu_count()} cores, {platform.system()}, load {load:.1f} before the run",
        "versions": {one.name: one.version for one in ready},
        "cells": [[cell.name, cell.about] for cell in CELLS if cell.name in cells],
        "results": found,
        "failures": failures,
    }
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _ready(names: list[str]) -> tuple[list[Entrant], dict[str, str]]:
    ready, failures = list[Entrant](), dict[str, str]()
    for name in names:
        try:
            ready.append(entrant(name))
        except PeerFailed as error:
            failures[name] = str(error)
            print(f"{name} takes no part: {error}", file=sys.stderr, flush=True)
    return ready, failures


def _played(one: Entrant, cells: list[str], pace: Pace) -> dict[str, Any]:
    folder = ENVIRONMENTS / "arena"
    folder.mkdir(parents=True, exist_ok=True)
    results = dict[str, Any]()
    for cell in (cell for cell in CELLS if cell.name in cells):
        try:
            results[cell.name] = played(one, cell, pace, folder)
        except (subprocess.SubprocessError, OSError) as error:
            results[cell.name] = {"failed": in_a_line(str(error))}
        print(f"{one.name:14} {cell.name:24} {json.dumps(results[cell.name])}", file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
