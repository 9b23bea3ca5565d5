"""What is no rate: rescue, idleness, import, and claims beside somebody's long transaction."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

from bench import idle, killed, snapshot
from bench.lines import THE_LIMIT, Bench, Line
from bench.measure import seconds
from bench.peers import SQLITE
from bench.served import environment

IMPORT = 60.0
"""Milliseconds over bare Python."""


def lines(bench: Bench) -> Iterator[Line]:
    quick = bench.quick
    yield from killed.lines(bench)
    yield from idle.lines(bench, 5 if quick else 20)
    if bench.store == SQLITE:
        yield imported()
    else:
        yield from snapshot.lines(bench, 20_000 if quick else 200_000)


def imported(rounds: int = 15) -> Line:
    """Medians, interleaved; modules are compiled, as they are where hipq is installed."""
    codes = ("pass", "import hipq")
    times: dict[str, list[float]] = {code: [] for code in codes}
    for number in range(rounds + 1):
        for code in codes:
            took = seconds(lambda code=code: _python(code))  # type: ignore[misc]
            if number:  # the first compiles
                times[code].append(took * 1000)
    bare, ours = (statistics.median(times[code]) for code in codes)
    return Line("import hipq, over bare Python", ours - bare, IMPORT, 1.0, "ms", THE_LIMIT)


def _python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)
