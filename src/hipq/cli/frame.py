"""One look of `hipq top` at a database, and how it is written down. All that it asks is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from hipq.cli.table import laid_out
from hipq.job.answer import BUFFERED, LATE, NEW
from hipq.job.units import number
from hipq.job.when import SECOND, lasting, to_datetime
from hipq.looking.counts import COUNTED, COUNTED_TO, named, up_to
from hipq.looking.lanes import lanes_of, limits_in_use, paused_parts
from hipq.looking.running import RunningJob, running, serving
from hipq.stores.protocols import Store
from hipq.stores.values import EngineSeen, QueueTables

QUEUES: Final = 50
"""The most queues that are looked at: those with the lowest numbers."""
PACE: Final = 5
"""Seconds over which the rate of ends is taken."""
HOUR: Final = 3600 * SECOND
TITLES: Final = ("queues", "limits", "running, the longest first", "answers", "engines")
_FEW: Final = 5
"""Lanes of a queue that are shown, the fullest first."""
_LEAST: Final = 4
"""Lines that a part gets at least, with its title and its head."""


class Frame(NamedTuple):
    where: str
    at: datetime
    queues: list[dict[str, Any]]
    more_queues: int
    """Queues that were not looked at."""
    limits: list[dict[str, Any]]
    running: list[dict[str, Any]]
    answers: dict[str, int]
    engines: list[dict[str, Any]]


def frame_of(store: Store, app: str) -> Frame:
    """A look at the queues of an instance, or at all of the database."""
    now, engines = store.now(), store.engines()
    every = store.queues(app)
    looked_at = every[:QUEUES]
    counts = {one.number: store.counts(one.number, COUNTED_TO, now - HOUR, now - PACE * SECOND) for one in looked_at}
    jobs = running(store, [one for one in looked_at if counts[one.number].executing], engines, now)
    return Frame(
        where=store.url,
        at=to_datetime(now),
        queues=[
            {"app": one.app, "queue": one.name, **named(counts[one.number]), "done": counts[one.number].done}
            for one in looked_at
        ],
        more_queues=len(every) - len(looked_at),
        limits=[found for one in looked_at for found in _limits(store, one)],
        running=[_listed(job) for job in jobs],
        answers=store.unused_answers([one.number for one in looked_at], COUNTED_TO),
        engines=[_engine(one, looked_at, Counter(job.worker for job in jobs)) for one in engines],
    )


def _listed(job: RunningJob) -> dict[str, Any]:
    row = job.row
    return {
        "id": row.id, "queue": job.queue.name, "type": row.job_type, "key": row.job_key, "lane": row.lane,
        "attempt": row.attempt, "for": job.seconds, "worker": job.worker,
    }  # fmt: skip


def _limits(store: Store, queue: QueueTables) -> list[dict[str, Any]]:
    limits = limits_in_use(store, queue.number)
    if limits is None:
        return []
    rules = limits.rules
    lanes = sorted(lanes_of(limits), key=lambda one: -float(one["used"]))[:_FEW]
    paused = "all" if rules.paused else ", ".join(paused_parts(rules))
    return [{
        "queue": queue.name, "limits": ", ".join(map(str, rules.in_force)), "held": number(sum(limits.held.values())),
        "limit": rules.most or None, "paused": paused, "lanes": lanes,
    }]  # fmt: skip


def _engine(one: EngineSeen, queues: Sequence[QueueTables], busy: Counter[str]) -> dict[str, Any]:
    served = [queue.name for queue in serving(one, queues)]
    return {"engine": one.engine_id, "worker": one.label, "running": busy[one.label], "lease": one.lease,
            "queues": ", ".join(served)}  # fmt: skip


# -- how it is written ------------------------------------------------------------------------------------------------
def lines_of(frame: Frame, width: int | None = None, height: int | None = None) -> list[str]:
    """The parts one below the other, in as many lines: what is left over goes to the jobs that run, which come last."""
    answers = {"waiting for their job": BUFFERED, "not looked at": NEW, "late": LATE}
    said = ", ".join(f"{up_to(frame.answers.get(state, 0))} {text}" for text, state in answers.items())
    parts = [
        _part("queues", frame.queues, _queue, width, spare=("app", "parked", "scheduled", "retrying", "failed")),
        _part("limits", frame.limits, _limit, width, spare=("limits", "lanes")),
        ["answers", f"  {said}"],
        _part("engines", frame.engines, _worker, width, spare=("queues",)),
        _part(TITLES[2], frame.running, _job, width, spare=("lane", "attempt", "queue")),
    ]
    if frame.more_queues:
        parts[0].append(f"  and {frame.more_queues:,} more queues")
    return _fitted([part for part in parts if part], height)


def _part(title: str, rows: Sequence[dict[str, Any]], said: Any, width: int | None, spare: Sequence[str]) -> list[str]:
    if not rows:
        return []
    shown = [said(row) for row in rows]
    columns = [name for name in shown[0] if any(row[name] not in ("", None) for row in shown)]
    return [title, *(f"  {line}" for line in laid_out(columns, shown, width and width - 2, spare))]


def _fitted(parts: Sequence[list[str]], height: int | None) -> list[str]:
    """Where there is no room for all, the longest part loses lines first, down to a few."""
    lengths = [len(part) for part in parts]
    room = None if height is None else height - len(parts) + 1  # an empty line between two
    while room is not None and sum(lengths) > room and max(lengths) > _LEAST:
        lengths[lengths.index(max(lengths))] -= 1
    shown = [line for part, length in zip(parts, lengths, strict=True) for line in ("", *part[:length])]
    return shown[1:][:height]


def _queue(row: dict[str, Any]) -> dict[str, Any]:
    rate = f"{'over ' if row['done'] >= COUNTED_TO else ''}{row['done'] / PACE:g}/s"
    counts = {name: up_to(row[name]) for name in COUNTED} | {"parked": up_to(row["parked"]) or ""}
    return {"app": row["app"], "queue": row["queue"], **counts, "ending": rate}


def _limit(row: dict[str, Any]) -> dict[str, Any]:
    used = [
        f"{one['lane'] or '(none)'} {one['used']}" + (f"/{one['most']}" if one["most"] else "") for one in row["lanes"]
    ]
    held = f"{row['held']}/{row['limit']}" if row["limit"] else f"{row['held']}"
    return {"queue": row["queue"], "held": held, "limits": row["limits"], "paused": row["paused"],
            "lanes": ", ".join(used)}  # fmt: skip


def _worker(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"lease": lasting(row["lease"])}


def _job(row: dict[str, Any]) -> dict[str, Any]:
    columns = ("id", "queue", "type", "key", "lane", "attempt", "for", "worker")
    return {name: row[name] for name in columns} | {"for": lasting(row["for"])}
