"""Every page is quick, however many jobs there are: 10,000,000 that have ended are HIPQ_TEST_JOBS=10000000.

HIPQ_TEST_BESIDE=3000 adds so many jobs a second meanwhile, in a process of its own, and another one runs them.

The table that it prints at the end has the median and the best of five visits, the processor's part of the median (of
this process and of the server's), and beside a list the same question in plain SQL.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from hipq import limit, per_lane
from hipq.dashboard.gate import Gate
from hipq.dashboard.job_filter import FIELDS, STATES
from hipq.dashboard.site import ROUTES, Site
from hipq.dashboard.tokens import Tokens
from hipq.stores.filters import AnswerFilter, Filter
from tests.dashboard.beside import busy
from tests.dashboard.plain_sql import Asked, Plain, PlainPostgres, PlainSqlite
from tests.dashboard.seen import do, go
from tests.dashboard.very_many import fill, parent, shop
from tests.dashboard.visiting import TOKENS
from tests.servers import OwnPostgres

JOBS: Final = int(os.environ.get("HIPQ_TEST_JOBS", "100000"))
MOST: Final = float(os.environ.get("HIPQ_TEST_PAGE_MS", "100"))
"""Milliseconds for a page. More of them, where the machine has much else to do."""
BESIDE: Final = int(os.environ.get("HIPQ_TEST_BESIDE", "0"))
VISITS: Final = 5

PAGES: Final = (
    "/", "/?over=day", "/?over=week", "/queues", "/queues/orders", "/queues/orders?over=week", "/jobs",
    "/jobs/{ok}", "/jobs/{parent}", "/jobs/{error}", "/jobs/{ready}", "/jobs/{scheduled}", "/jobs/{waiting}",
    "/jobs/{running}",
    "/jobs/{ok}/data", "/jobs/{ok}/result", "/jobs/{ready}/cancel", "/jobs/{ready}/change",
    "/bulk?do=requeue&job={error}", "/bulk?do=requeue&all=1&state=failed", "/bulk?do=cancel&all=1&state=scheduled",
    "/bulk?do=run&all=1&state=scheduled&type=charge", "/bulk?do=requeue&all=1&error=bank-17", "/bulk/{operation}",
    "/answers", "/answers?state=late", "/answers?key=order-100", "/answers?type=nothing", "/answers/{answer}",
    "/answers/{answer}/data", "/rules", "/rules/orders/try?most=100", "/rules/orders/try?most=100&lane=3",
    "/audit", "/audit?before=50", "/health", "/login",
)  # fmt: skip
LISTS: Final = {
    "": "true",
    "queue=imports": "job_type = 'load'",
    "type=charge": "job_type = 'charge'",
    "type=ship": "job_type = 'ship'",
    "type=send": "job_type = 'send'",
    "state=live": "state <> 'final'",
    "state=scheduled": "state = 'initial' AND phase = 'scheduled'",
    "state=ready": "phase = 'ready'",
    "state=held back": "phase = 'parked'",
    "state=running": "phase = 'executing'",
    "state=waiting": "phase = 'waiting'",
    "state=answered": "phase = 'answered'",
    "state=cancelling": "phase = 'cancelling'",
    "state=deciding": "phase = 'deciding'",
    "state=retrying": "state = 'retry'",
    "state=ended": "state = 'final'",
    "state=ok": "state = 'final' AND code = 'ok'",
    "state=failed": "state = 'final' AND code = 'failed'",
    "state=error": "state = 'final' AND code = 'error'",
    "state=cancelled": "state = 'final' AND code = 'cancelled'",
    "code=ok": "code = 'ok'",
    "code=error": "code = 'error'",
    "code=retry": "code = 'retry'",
    "key=order-50000": "job_key = 'order-50000'",
    "key=nightly-3": "job_key = 'nightly-3'",
    "key=nothing": "job_key = 'nothing'",
    "prefix=order-500": "job_key >= 'order-500' AND job_key < 'order-501'",
    "prefix=nightly": "job_key >= 'nightly' AND job_key < 'nightlz'",
    "id={error}": "id = {error}",
    "lane=lane-3": "lane = 'lane-3'",
    "lane=vip": "lane = 'vip'",
    "lane=nothing": "lane = 'nothing'",
    "tenant=acme": "tenant = 'acme'",
    "tenant=tenant-5": "tenant = 'tenant-5'",
    "tenant=nothing": "tenant = 'nothing'",
    "since=1h": "create_time >= {now} - 3600000000",
    "since=3d&before=2d": "create_time >= {now} - 259200000000 AND create_time < {now} - 172800000000",
    "before=6d": "create_time < {now} - 518400000000",
    "error=bank-17.": "error LIKE '%bank-17.%'",
    "error=nothing": "error LIKE '%nothing%'",
    "payload=customer=17": "job_data LIKE '%\"customer\":17,%'",
    "payload=customer=nothing": 'job_data LIKE \'%"customer":"nothing"%\'',
    "state=failed&tenant=acme": "state = 'final' AND code = 'failed' AND tenant = 'acme'",
    "state=error&error=nothing": "state = 'final' AND code = 'error' AND error LIKE '%nothing%'",
    "state=waiting&lane=lane-3": "phase = 'waiting' AND lane = 'lane-3'",
    "state=scheduled&type=ship": "state = 'initial' AND phase = 'scheduled' AND job_type = 'ship'",
    "type=ship&since=3d&before=2d": "job_type = 'ship' AND create_time >= {now} - 259200000000 "
    "AND create_time < {now} - 172800000000",
    "tenant=acme&type=ship": "tenant = 'acme' AND job_type = 'ship'",
    "tenant=acme&key=nothing": "tenant = 'acme' AND job_key = 'nothing'",
    "parent={parent}": "meta = '{{\"parent\":{parent}}}'",
    "parent={parent}&state=failed": "meta = '{{\"parent\":{parent}}}' AND state = 'final' AND code = 'failed'",
    "parent=1": "meta = '{{\"parent\":1}}'",
}
"""What the jobs page is asked, and the same in SQL."""
VISITED: Final = (
    *PAGES, *(f"/jobs?{asked}" for asked in LISTS), *(f"/jobs?{asked}&order=oldest" for asked in LISTS if asked),
    "/jobs?find=order-50000", "/jobs?find=nightly", "/jobs?find={error}",
)  # fmt: skip


class Line(NamedTuple):
    median: float
    best: float
    processor: float
    plain: Asked | None


class Sized:
    """A site at size, what its pages name, and how long they took."""

    def __init__(self, name: str, site: Site, plain: Plain) -> None:
        self.name, self.site, self.plain = name, site, plain
        self.lines: dict[str, Line] = {}
        number = site.queue("orders").number
        wanted: dict[str, dict[str, Any]] = {
            "ok": {"code": "ok"}, "error": {"code": "error", "table": "final"}, "ready": {"phase": "ready"},
            "scheduled": {"phase": "scheduled"}, "waiting": {"phase": "waiting"}, "running": {"phase": "executing"},
        }  # fmt: skip
        self.named: dict[str, Any] = {
            name: site.store.find(Filter(number, newest=True, limit=1, **one), brief=True)[0].id
            for name, one in wanted.items()
        }
        site.apps[0].rules.set_limit("orders", [limit(JOBS // 10), per_lane(JOBS // 20)])
        self.named["answer"] = site.store.answers(AnswerFilter(number, state="late", newest=True, limit=1))[0].id
        self.named["now"], self.named["parent"] = site.store.now(), parent(number)
        self.beside = ""
        started = do(site, "/bulk", {"do": "run", "job": [str(self.named["ready"])]}).removeprefix("/bulk/")
        site.operations.get(started).thread.join(60)
        self.named["operation"] = started
        began = time.perf_counter()
        site.board.judgement.read()  # in a thread of its own, when a page is visited; a twentieth of the time at most
        self.doctor = (time.perf_counter() - began) * 1000

    def visit(self, page: str) -> Line:
        path = re.sub(r"\{(\w+)\}", lambda match: str(self.named[match[1]]), page)
        times, work = [], []
        for n in range(VISITS + 1):  # the first one is not counted: templates are compiled, pages are read from disk
            busy, began = time.process_time() + self.plain.processor(), time.perf_counter()
            reply = go(self.site, path)
            took, after = time.perf_counter() - began, time.process_time() + self.plain.processor()
            assert reply.status in (200, 303), reply.body.decode()
            if n:
                times.append(took * 1000)
                work.append((after - busy) * 1000)
        asked = page.removeprefix("/jobs?") if page.startswith("/jobs?") else ""
        plain = self.plain.list(self.site, LISTS[asked].format(**self.named)) if asked in LISTS and asked else None
        self.lines[page] = Line(statistics.median(times), min(times), statistics.median(work), plain)
        return self.lines[page]

    def table(self) -> str:
        found = [f"{self.name}: {JOBS:,} jobs have ended; doctor looks for {self.doctor:.0f} ms, in the background"]
        found += [f"beside: {self.beside}"] if self.beside else []
        found.append(f"{'ms':>8}{'best':>8}{'cpu':>8}{'plain SQL':>11}  page")
        for page, line in self.lines.items():
            plain = str(line.plain) if line.plain else ""
            found.append(f"{line.median:8.1f}{line.best:8.1f}{line.processor:8.1f}{plain:>11}  {page}")
        return "\n".join(found)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def sized(request: pytest.FixtureRequest) -> Iterator[Sized]:
    opened = {"sqlite": sqlite, "postgres": postgres}[request.param]
    with opened() as (url, plain):
        fill(url, JOBS)
        app = shop(url)
        found = Sized(request.param, Site([app], gate=Gate(Tokens(TOKENS))), plain())
        with busy(url, BESIDE) as ended:
            yield found
            found.beside = ended()
        app.close()
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{found.table()}")


@contextmanager
def sqlite() -> Iterator[tuple[str, Callable[[], PlainSqlite]]]:
    """Where there is room: not in memory."""
    folder = Path(tempfile.mkdtemp(prefix="hipq-at-size-"))
    try:
        yield f"sqlite:///{folder}/shop.db", lambda: PlainSqlite(folder / "shop.db")
    finally:
        shutil.rmtree(folder)


@contextmanager
def postgres() -> Iterator[tuple[str, Callable[[], PlainPostgres]]]:
    with OwnPostgres(fsync="off", autovacuum="off", shared_buffers="512MB", max_wal_size="2GB") as server:
        yield server.url, lambda: PlainPostgres(server.url)


@pytest.mark.long
@pytest.mark.parametrize("page", VISITED)
def test_every_page_is_quick(sized: Sized, page: str) -> None:
    assert sized.visit(page).median < MOST


def test_every_page_is_visited() -> None:
    visited = {re.sub(r"\?.*", "", page) for page in VISITED}
    for route in ROUTES:
        if route.method == "GET":
            pattern = re.sub(r"\{\w+\}", "[^/]+", route.pattern)
            assert any(re.fullmatch(pattern, page) for page in visited), route.pattern
    filters = {part.partition("=")[0] for asked in LISTS for part in asked.split("&") if part}
    assert filters == set(FIELDS)
    assert {f"state={state}" for state in STATES} <= set(LISTS)
