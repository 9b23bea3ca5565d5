"""Queues, limits, running jobs, engines and charts as the overview and the queue pages show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hipq.job.activity import MINUTE, Activity, Histogram
from hipq.job.progress import in_words
from hipq.job.units import number
from hipq.job.when import SECOND
from hipq.looking.charts import Past
from hipq.looking.counts import COUNTED_TO
from hipq.looking.lanes import lanes_of
from hipq.looking.queues import QueueLook, look_at
from hipq.looking.running import RunningJob, running, serving
from hipq.stores.protocols import Store
from hipq.stores.values import EngineSeen, Holder, QueueTables

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

FEW: Final = 4
"""So many queues are counted far; more of them a tenth of that: it has to be quick."""
HOLDERS: Final = 4
"""Jobs that are named beside a limit."""
NAMED: Final = 6
"""Queues that are named beside an engine."""
LEASE_STEP: Final = 5
"""Seconds: what is left of a lease is shown so coarsely that a page does not change all the time."""


class Figure(NamedTuple):
    word: str
    """As `words.said` has it."""
    jobs: int
    most: int
    title: str = ""


class Held(NamedTuple):
    """A job that holds units of a limit."""

    id: int
    state: str
    """"running", "waiting", or "lost": its engine is gone."""


class Bar(NamedTuple):
    """How far a limit is used."""

    queue: str
    lane: str | None
    """None = of the whole queue."""
    used: float
    most: float
    held: list[Held]
    more: int
    """Jobs that hold units of it and are not named."""

    @property
    def share(self) -> float:
        return self.used / self.most if self.most else 0.0


class QueueView(NamedTuple):
    name: str
    """What the site calls it."""
    look: QueueLook
    most: int
    """Where counting stopped."""
    types: list[str]
    """The job types that engines serve."""
    engines: int

    @property
    def figures(self) -> list[Figure]:
        found, most = self.look.counts, self.most
        counts = {
            "ready": found.ready, "scheduled": found.scheduled, "held back": found.parked, "running": found.executing,
            "waiting": found.waiting, "retrying": found.retry, "failed": found.failed,
        }  # fmt: skip
        titles = {
            "retrying": "ready or scheduled again after a failure",
            "failed": "ended in the last hour without success",
            "held back": "kept by the queue's throttler",
        }
        return [
            Figure(word, count, most, titles.get(word, ""))
            for word, count in counts.items()
            if count or word != "held back"
        ]

    @property
    def paused(self) -> list[str]:
        rules = self.look.rules
        lanes = [f"lane {lane or '(none)'} paused" for lane in rules.paused_lanes]
        return ["paused"] * rules.paused + lanes + [f"{name} paused" for name in rules.paused_types]

    @property
    def unserved(self) -> bool:
        """Nobody does its work, and there is some."""
        found = self.look.counts
        return not self.engines and any((found.ready, found.executing, found.waiting))

    def bars(self, engines: Sequence[EngineSeen]) -> list[Bar]:
        """Its limit and its lanes, the fullest first."""
        limits = self.look.limits
        if limits is None:
            return []
        alive, whole = {one.engine_id for one in engines}, float(limits.rules.most)
        used = float(number(sum(limits.held.values())))
        found = [_bar(self.name, None, used, whole, limits.holders, alive)] if whole else []
        for one in lanes_of(limits):
            if one["most"] is not None or (one["lane"] and whole):
                holders = [holder for holder in limits.holders if holder.lane == one["lane"]]
                most = float(one["most"] or whole)
                found.append(_bar(self.name, one["lane"], float(one["used"]), most, holders, alive))
        return sorted(found, key=lambda bar: (bar.lane is not None, -bar.share))


def _bar(queue: str, lane: str | None, used: float, most: float, holders: Sequence[Holder], alive: set[int]) -> Bar:
    worst = sorted(holders, key=lambda one: not _is_lost(one, alive))  # dead work first, then the heaviest
    held = [Held(one.id, _state(one, alive)) for one in worst[:HOLDERS]]
    return Bar(queue, lane, used, most, held, len(holders) - len(held))


def _is_lost(holder: Holder, alive: set[int]) -> bool:
    return holder.owner != 0 and holder.owner not in alive


def _state(holder: Holder, alive: set[int]) -> str:
    if _is_lost(holder, alive):
        return "lost"
    return "running" if holder.owner else "waiting"


def read(
    store: Store, name: str, tables: QueueTables, engines: Sequence[EngineSeen], now: int, among: int = 1
) -> QueueView:
    """A queue, one of so many on the page."""
    most = COUNTED_TO if among <= FEW else COUNTED_TO // 10
    served = [one.serves[str(tables.number)] for one in engines if str(tables.number) in one.serves]
    types = sorted({job_type for types in served for job_type in types})
    return QueueView(name, look_at(store, tables, most, now), most, types, len(served))


# -- running jobs and engines ------------------------------------------------------------------------------------------
class RunningView(NamedTuple):
    queue: str
    job: RunningJob
    progress: str


def running_jobs(
    site: Site, queues: Iterable[QueueView], engines: Sequence[EngineSeen], now: int, shown: int = 10
) -> list[RunningView]:
    """The longest first; of so many what they say of their progress, too."""
    names = {one.look.tables.number: one.name for one in queues if one.look.counts.executing}
    tables = [one.look.tables for one in queues if one.look.counts.executing]
    jobs = running(site.store, tables, engines, now)
    said = [_progress(site, job) for job in jobs[:shown]] + [""] * (len(jobs) - shown)
    return [RunningView(names[job.queue.number], job, text) for job, text in zip(jobs, said, strict=True)]


def _progress(site: Site, job: RunningJob) -> str:
    found = site.store.progress(job.row.id, job.row.attempt)
    return str(site.shown(in_words(found.fraction, found.message))) if found else ""


class EngineView(NamedTuple):
    seen: EngineSeen
    queues: list[str]
    """Some of those it serves, as the site calls them."""
    more: int
    running: int
    lease: int
    """Seconds it is sure to go on for, about."""


def engines(
    seen: Iterable[EngineSeen], every: Mapping[str, QueueTables], running: Iterable[RunningView]
) -> list[EngineView]:
    busy = Counter(one.job.row.owner for one in running)
    names = {tables.number: name for name, tables in every.items()}
    found = []
    for one in seen:
        served = [names[tables.number] for tables in serving(one, every.values())]
        lease = -(-int(one.lease) // LEASE_STEP) * LEASE_STEP
        found.append(EngineView(one, served[:NAMED], len(served) - NAMED, busy[one.engine_id], lease))
    return found


# -- charts ------------------------------------------------------------------------------------------------------------
def charts(past: Past) -> dict[str, Any]:
    """What uPlot draws, and the sums. A minute that has not ended is left out: it would look like a drop."""
    points = past.points[:-1] if past.span.grain == MINUTE and any(map(_any, past.points[:-1])) else past.points
    x = [one.starts // SECOND for one in points]
    found: dict[str, Any] = {"whole": past.whole, "rates": {"x": x, "unit": "", "lines": _rates(past, points)}}
    tones = {"run": "run", "answer": "wait"}
    for name, tone in tones.items():
        found[name] = {"x": x, "unit": "s", "lines": _percentiles([getattr(one, name) for one in points], tone)}
    return found


def _any(point: Activity) -> bool:
    return any(point.counts)


def _rates(past: Past, points: Sequence[Activity]) -> list[dict[str, Any]]:
    tones = {"started": "run", "finished": "ok", "failed": "bad"}
    return [
        {
            "name": name, "tone": tone, "fill": name == "finished",
            "values": [round(getattr(one, name) / past.minutes(one), 1) for one in points],
        }
        for name, tone in tones.items()
    ]  # fmt: skip


def _percentiles(found: Sequence[Histogram], tone: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "tone": tone, "dash": share > 0.5, "values": [_short(one.percentile(share)) for one in found]}
        for name, share in (("p50", 0.5), ("p95", 0.95))
    ]


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds:.3g}")
