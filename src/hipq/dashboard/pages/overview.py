"""What needs attention, what has happened, the queues, their limits, what runs, the engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hipq.dashboard import figures
from hipq.dashboard.visit import PageRoute, Refused, Reply, Role, Visit
from hipq.looking.charts import SPANS, newest
from hipq.stores.values import QueueTables

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

SHOWN: Final = 20
"""Queues on the overview, the busiest ones, and on a page of all queues."""
BIG: Final = 3
"""So many queues are shown with large figures; more of them in a table."""
BARS: Final = 12
JOBS: Final = 10
ENGINES: Final = 20


def page(site: Site, visit: Visit) -> Reply:
    over, now = span_of(visit), site.store.now()
    every, judgement = site.board.registered(), site.board.judgement.latest()
    engines = site.store.engines()
    shown = _busiest(every, judgement.busy if judgement else {})
    queues = [figures.read(site.store, name, tables, engines, now, len(shown)) for name, tables in shown]
    bars = sorted((bar for one in queues for bar in one.bars(engines)), key=lambda bar: -bar.share)
    running = figures.running_jobs(site, queues, engines, now)
    past = site.board.past(over, every) if every else None
    numbers = [tables.number for tables in every.values()]
    return site.render(
        "overview.html", visit, now=now, over=over, spans=list(SPANS), judgement=judgement, every=len(every),
        queues=queues, big=len(queues) <= BIG, charts=figures.charts(past) if past else None,
        stale=newest(site.store, numbers, now) if every and not engines else 0, bars=bars[:BARS],
        more_bars=len(bars) - BARS, running=running[:JOBS], more_running=len(running) - JOBS,
        engines=figures.engines(engines[:ENGINES], every, running), more_engines=len(engines) - ENGINES,
        alive=len(engines),
    )  # fmt: skip


def span_of(visit: Visit) -> str:
    over = visit.asked("over", "hour")
    if over not in SPANS:
        raise Refused(400, f"the figures are over an {', a '.join(SPANS)}: over={over[:20]} is none of them")
    return over


def _busiest(every: Mapping[str, QueueTables], busy: Mapping[int, int]) -> list[tuple[str, QueueTables]]:
    """In the order of their numbers, if there is room for all."""
    if len(every) <= SHOWN:
        return list(every.items())
    return sorted(every.items(), key=lambda one: (-busy.get(one[1].number, 0), one[1].number))[:SHOWN]


ROUTES: Final = (PageRoute("GET", "/", Role.VIEW, page),)
