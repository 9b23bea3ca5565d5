"""The counters of what has happened, compared with the trail of all writes: counted here in another way, from rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from hipq.job.activity import DAY, MINUTE, Activity, total
from hipq.job.states import CODES, EXECUTING, FINAL, NONE, RETRY
from hipq.job.when import SECOND
from hipq.stores.protocols import Store
from tests.simulation.audit import Write, require

ENDS = set(CODES) - {NONE}


def check(store: Store, queue: int, writes: Iterable[Write]) -> None:
    """As they are now, and folded, by and by, until all of it is in days. The calendar may have been set."""
    expected = _from_trail(writes)
    minutes = [minute for _, minute, _ in expected] or [store.now()]
    found = store.activity([queue], MINUTE, min(minutes), max(minutes) + 1, "job_type")
    _compare(_by_minute(found), expected, "minutes")
    together = total(found)
    require(together.run.total <= together.started, "counters", "more runs took time than have started", together)
    since, until = min(minutes) - 100 * DAY * SECOND, max(minutes) + 100 * DAY * SECOND
    for days in (1, 30):
        while store.maintain([queue], store.now() + days * DAY * SECOND, 1_000).folded:
            pass
        found = store.activity([queue], DAY, since, until, "job_type")
        _compare(_in_all(_by_minute(found)), _in_all(expected), f"days, after {days}")


Counts = Counter[tuple[str, int, str]]
"""By counter, minute and job type."""


def _from_trail(writes: Iterable[Write]) -> Counts:
    counts: Counts = Counter()
    live: dict[int, dict[str, Any]] = {}
    for write in writes:
        old, new = live.get(write.id), write.new
        if write.verb == "DELETE":
            continue
        live[write.id] = new
        if old is None:
            continue
        job_type, now = new["job_type"], new["update_time"]
        is_kept = new["attempt"] == old["attempt"]
        if old["phase"] == EXECUTING and new["phase"] != EXECUTING and is_kept:
            counts["started", _minute(old["deadline"] - round(old["timeout"] * SECOND)), job_type] += 1
        if new["state"] == FINAL:
            counts[new["code"], _minute(now), job_type] += 1
        elif new["state"] == RETRY and old["state"] != RETRY and is_kept:
            counts["retried", _minute(now), job_type] += 1
    return counts


def _by_minute(found: Iterable[Activity]) -> Counts:
    counts: Counts = Counter()
    for one in found:
        counts["started", one.starts, one.job_type] += one.started
        counts["retried", one.starts, one.job_type] += one.retried
        for code in ENDS:
            counts[code, one.starts, one.job_type] += one.ended(code)
    return +counts


def _in_all(counts: Counts) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for (name, _, job_type), count in counts.items():
        found[name, job_type] += count
    return found


def _minute(moment: int) -> int:
    return moment // (MINUTE * SECOND) * MINUTE * SECOND


def _compare(found: Counter[Any], expected: Counter[Any], what: str) -> None:
    wrong = {key: (found[key], expected[key]) for key in found.keys() | expected.keys() if found[key] != expected[key]}
    require(not wrong, "counters", f"in {what}, counted and happened: {wrong}")
