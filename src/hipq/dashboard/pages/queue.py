"""A queue: what it has, what has happened in it by job type, its limits, who works on it. And all queues by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hipq.dashboard import figures
from hipq.dashboard.pages.overview import SHOWN, span_of
from hipq.dashboard.visit import PageRoute, Reply, Role, Visit
from hipq.errors import NotFound
from hipq.looking.charts import SPANS, by_type, newest, past

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

BARS: Final = 40
JOBS: Final = 25


def page(site: Site, visit: Visit) -> Reply:
    name, over, store = visit.params["name"], span_of(visit), site.store
    queue = site.queue(name)
    tables = site.board.registered().get(name)
    if tables is None:
        raise NotFound(f"the database has no queue {queue.name} yet: it is made when a program first uses it")
    now, every, judgement = store.now(), store.engines(), site.board.judgement.latest()
    serving = [one for one in every if str(tables.number) in one.serves]
    shown = figures.read(store, name, tables, every, now)
    bars, running = shown.bars(every), figures.running_jobs(site, [shown], every, now, JOBS)
    return site.render(
        "queue.html", visit, now=now, over=over, spans=list(SPANS), queue=shown,
        attention=[one for one in (judgement.attention if judgement else ()) if one.queue == name],
        charts=figures.charts(past(store, [tables.number], SPANS[over], now)),
        types=by_type(store, tables.number, SPANS[over], now),
        stale=0 if serving else newest(store, [tables.number], now),
        bars=bars[:BARS], more_bars=len(bars) - BARS, running=running[:JOBS], more_running=len(running) - JOBS,
        engines=figures.engines(serving[:SHOWN], {name: tables}, running), more_engines=len(serving) - SHOWN,
    )  # fmt: skip


def every(site: Site, visit: Visit) -> Reply:
    """All queues by name, a page at a time."""
    after, store = visit.asked("after"), site.store
    found = sorted(site.board.registered().items())
    rest = [one for one in found if one[0] > after]
    now, engines = store.now(), store.engines()
    queues = [figures.read(store, name, tables, engines, now, SHOWN) for name, tables in rest[:SHOWN]]
    following = rest[SHOWN - 1][0] if len(rest) > SHOWN else ""
    return site.render("queues.html", visit, now=now, queues=queues, every=len(found), following=following)


ROUTES: Final = (PageRoute("GET", "/queues", Role.VIEW, every), PageRoute("GET", "/queues/{name}", Role.VIEW, page))
