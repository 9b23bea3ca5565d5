"""What it costs that each change of a job is counted for the dashboard: drains with the counters, and without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import patch

from bench.lines import PAYLOAD, ROUNDS, Bench, Line
from bench.measure import best

LOSS = 0.03
"""What a drain may lose."""
_WRITERS = ("hipq.stores.sqlite.turn", "hipq.stores.postgres.turn")


def lines(bench: Bench) -> Iterator[Line]:
    counted, uncounted = "counted", "without counters"
    rates = best({counted: lambda: _drained(bench), uncounted: lambda: _drained_uncounted(bench)}, 2 * ROUNDS)
    name = f"drain {bench.size:,} no-op, {counted}"
    yield Line(name, rates[counted], rates[uncounted], 1 - LOSS, against=uncounted)


def _drained(bench: Bench) -> float:
    queue = bench.queue()
    queue.enqueue_many("work", [PAYLOAD] * bench.size)
    took = bench.drain(queue)
    bench.check_done(queue)
    return bench.size / took


def _drained_uncounted(bench: Bench) -> float:
    with ExitStack() as stack:
        for module in _WRITERS:
            stack.enter_context(patch(f"{module}.tally", lambda *_: {}))
        return _drained(bench)
