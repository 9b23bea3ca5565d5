"""docs/reference.md: its ranges are the code's, and its example runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq, Invalid, aged, fixed, limit, per_lane, rate
from hipq.answers.arrive import ID_LIMIT
from hipq.engine.timetable import LEASE, POLL
from hipq.job import names, payload, windows
from hipq.job.answer import DEFAULT_KEEPING
from hipq.job.model import QUEUE_BITS
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN
from tests.docs.test_readme import ROOT, blocks, run

TEXT = (ROOT / "docs/reference.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| ([\d.-]+) \| ([\d.]+) \| ([\w.]*) ?\|$", TEXT, flags=re.MULTILINE)


def declared(**options: Any) -> Callable[[Hipq], object]:
    return lambda app: app.queue("orders").job(**options)(print)


def queue(**options: Any) -> Callable[[Hipq], object]:
    return lambda app: app.queue("orders", **options)


def engine(**options: Any) -> Callable[[Hipq], object]:
    def made(app: Hipq) -> None:
        app.queue("orders")
        app.engine(**options).executor.close()
        app.close()

    return made


TRIES: dict[str, Callable[[Any], Callable[[Hipq], object]]] = {
    "priority": lambda value: declared(name="charge", priority=value),
    "throttle_factor": lambda value: declared(name="charge", throttle_factor=value),
    "timeout": lambda value: declared(name="charge", timeout=value),
    "run_timeout": lambda value: declared(name="charge", run_timeout=value),
    "lifetime": lambda value: declared(name="charge", lifetime=value),
    "delay": lambda value: lambda app: app.queue("orders").enqueue("charge", delay=value),
    "grain": lambda value: queue(grain=value),
    "aged": lambda value: lambda _app: aged(value),
    "limit": lambda value: lambda _app: limit(value),
    "per_lane": lambda value: lambda _app: per_lane(value),
    "rate": lambda value: lambda _app: rate(value),
    "per": lambda value: lambda _app: rate(1, per=value),
    "attempts": lambda value: lambda _app: fixed(1, attempts=value),
    "answer_ttl": lambda value: queue(answer_ttl=value),
    "early_window": lambda value: queue(early_window=value),
    "answer_memory": lambda value: queue(answer_memory=value),
    "poll": lambda value: engine(poll=value),
    "lease": lambda value: engine(lease=value),
}
"""How each is given. An engine with 10,000 hands is not made: concurrency is looked up in the code."""


def number(text: str) -> float:
    return float(text) if "." in text else int(text)


@pytest.mark.parametrize(("name", "least", "most", "usual"), ROWS, ids=[row[0] for row in ROWS])
def test_ranges(name: str, least: str, most: str, usual: str) -> None:
    low, high = number(least), number(most)
    step = 1 if "." not in least and "." not in most and name in WHOLE else low / 1000 or 0.001
    tried = TRIES.get(name, lambda value: engine(concurrency=value))
    good = [low] if name == "concurrency" else [low, high]
    for value in good:
        tried(value)(Hipq("shop", "sqlite://"))
    for value in (low - step, high + max(step, 1)):
        with pytest.raises(Invalid):
            tried(value)(Hipq("shop", "sqlite://"))
    if usual and usual != "none":
        assert float(usual) == USUAL[name]


WHOLE = {"priority", "attempts", "concurrency"}
USUAL = {
    "priority": 100, "throttle_factor": 1, "timeout": 86_400, "delay": 0, "grain": 1, "per": rate(1).per,
    "concurrency": 10,    "answer_ttl": DEFAULT_KEEPING.answer_ttl, "early_window": DEFAULT_KEEPING.early_window,
    "answer_memory": DEFAULT_KEEPING.answer_memory, "poll": POLL, "lease": LEASE,
}  # fmt: skip


def test_no_number_is_missing() -> None:
    assert {row[0] for row in ROWS} == {*TRIES, "concurrency"}
    assert ("priority", str(PRIORITY_MIN), str(PRIORITY_MAX), "100") in ROWS
    for told in (
        f"key | 1 to {names.KEY_LIMIT} printable", f"`answer_id` | 1 to {ID_LIMIT} printable",
        f"| windows of a job | {windows.MOST} |",
        f"lane | up to {names.LANE_LIMIT} printable",
        f"{payload.SIZE_LIMIT} bytes of JSON, nested {payload.DEPTH_LIMIT} deep",
        f"| queues in a database | {(1 << QUEUE_BITS) - 1} |",
    ):  # fmt: skip
        assert told in TEXT
    for check, most in ((names.job_type, 200), (names.reason, 1000), (lambda text: names.name(text, "x"), 40)):
        assert check("x" * most)
        with pytest.raises(Invalid):
            check("x" * (most + 1))


def test_its_example_runs(tmp_path: Path) -> None:
    ((language, block),) = blocks("docs/reference.md")
    assert language == "python"
    run([sys.executable, "-c", block], tmp_path)


def test_the_page_of_decisions_is_one_table() -> None:
    text = (ROOT / "docs/decisions.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) > 20
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)
    assert "seed" not in text.lower()
