"""Every page in a real browser, by day, by night and on a phone: nothing complains, and nobody is shut out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from hipq.dashboard import live
from hipq.dashboard.site import ROUTES
from tests.dashboard.axe import barriers, faults_of
from tests.dashboard.looks import LIGHT, LOOKS, Look, put_on
from tests.dashboard.person import Person, person
from tests.dashboard.serving import eventually

FIRST_VIEW: Final = 150_000
"""The most bytes that the overview and all that it loads may be."""
NO_PAGES: Final = {"/health", "/jobs/{id}/data", "/jobs/{id}/result", "/answers/{id}/data"}
"""What is downloaded, or for programs."""
LOADED: Final = "performance.getEntriesByType('resource').map(one => one.name)"
WATCHED: Final = """
    window.shifts = [];
    const watch = list => shifts.push(...list.getEntries().map(one => one.value));
    new PerformanceObserver(watch).observe({type: "layout-shift"});
    addEventListener("hipq:updated", () => { window.told = true; });
"""
SEEN_SINCE: Final = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))
    .then(() => shifts)"""


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """On SQLite: what pages show of other stores is tested without a browser, and no look is a store's."""
    with person("sqlite", tmp_path_factory.mktemp("shop")) as found:
        yield found


def looks(ada: Person) -> Iterator[Look]:
    """One after the other."""
    for look in LOOKS:
        put_on(ada.browser, look)
        yield look


def paths(ada: Person) -> dict[str, list[str]]:
    """Where each pattern leads; more than once where its page has several faces."""
    ids = ada.shop.ids
    early, conflict = (ada.app.answers.list(state=state, limit=1)[0] for state in ("buffered", "conflict"))
    faces = (
        "refund-0",
        "order-waiting",
        "order-1-0",
        "refund-broken",
        "settle-14",
        "later-1",
        "later-4",
        "refund-now-0",
    )
    return {
        "/": ["/", "/?over=week"],
        "/queues": ["/queues"],
        "/queues/{name}": ["/queues/orders", "/queues/reports"],
        "/jobs": [
            "/jobs",
            f"/jobs?parent={ids['refund-0']}",
            "/jobs?state=error&before=1m&queue=orders",
            "/jobs?key=none",
        ],
        "/jobs/{id}": [f"/jobs/{ids[key]}" for key in faces],
        "/jobs/{id}/cancel": [f"/jobs/{ids['later-1']}/cancel", f"/jobs/{ids['refund-broken']}/cancel"],
        "/jobs/{id}/change": [f"/jobs/{ids['later-1']}/change"],
        "/bulk": ["/bulk?do=cancel&all=1&queue=mails", f"/bulk?do=change&job={ids['later-1']}"],
        "/bulk/{id}": [in_bulk(ada)],
        "/answers": ["/answers", "/answers?state=conflict", "/answers?key=none"],
        "/answers/{number}": [f"/answers/{early.id}", f"/answers/{conflict.id}"],
        "/rules": ["/rules"],
        "/rules/{queue}/try": ["/rules/orders/try?most=5"],
        "/audit": ["/audit"],
        "/login": ["/login"],
    }


def in_bulk(ada: Person) -> str:
    """A page that shows how far something is that is done to many jobs."""
    ada.go(f"/bulk?do=run&job={ada.shop.ids['refund-broken']}")
    ada.press("Run 1 job now")
    return ada.path


def test_every_route_is_looked_at(ada: Person) -> None:
    assert {*paths(ada)} | NO_PAGES == {route.pattern for route in ROUTES if route.method == "GET"}


def test_every_page(ada: Person) -> None:
    wrong: list[tuple[str, str, str]] = []
    for look in looks(ada):
        for path in [path for some in paths(ada).values() for path in some]:
            wrong += [(look.name, path, one) for one in looked_at(ada, path, look)]
    assert wrong == []


def looked_at(ada: Person, path: str, look: Look) -> list[str]:
    """What is wrong with a page."""
    ada.go(path)
    draws = ada.browser.evaluate("document.querySelector('[data-chart]') !== null")
    loads = any("uPlot" in url for url in ada.browser.evaluate(LOADED))
    assert draws == loads, path
    return ada.complaints() + faults_of(ada.browser, look)


def test_refusals_and_help(ada: Person) -> None:
    put_on(ada.browser, LIGHT)
    for path, status in (("/nowhere", 404), (f"/answers/{1 << 40}", 404), ("/jobs?since=nonsense", 400)):
        assert ada.browser.open(f"{ada.address}{path}") == status
        assert barriers(ada.browser) == []
        assert [one for one in ada.complaints() if f"a status of {status}" not in one] == []
    ada.go("/audit")
    ada.unfold("?")
    assert ada.see("#keys h2") == "Keyboard"
    assert barriers(ada.browser) == []


def test_downloads(ada: Person) -> None:
    ada.go("/jobs")
    job, answer = ada.shop.ids["order-1-0"], ada.app.answers.list(limit=1)[0].id
    for path in ("/health", f"/jobs/{job}/data", f"/jobs/{job}/result", f"/answers/{answer}/data"):
        assert ada.browser.evaluate(f"fetch('{path}').then(got => got.status)") == 200
    assert ada.complaints() == []


def test_the_first_view_is_light(ada: Person) -> None:
    put_on(ada.browser, LIGHT)
    ada.browser.ask("Network.clearBrowserCache")
    ada.go("/")
    parts = ada.browser.evaluate(
        "['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind))"
        ".filter(one => !one.name.includes('/live?')).map(one => [one.name, one.transferSize])"
    )
    assert len(parts) >= 6, "the page, its style and scripts, and what draws its charts"
    assert all(size for _, size in parts), "nothing is from a cache"
    assert sum(size for _, size in parts) < FIRST_VIEW, parts


def test_nothing_moves_under_the_eyes_while_it_is_live(ada: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PERIOD", 0.05)
    monkeypatch.setattr(live, "REST", 1)
    job = ada.shop.ids["later-3"]
    for look, path in ((look, path) for look in looks(ada) for path in ("/", "/queues/orders", f"/jobs/{job}")):
        ada.go(path)
        eventually(lambda: ada.dashboard.live._streams)
        ada.browser.evaluate(WATCHED)
        for priority in (11, 12, 13):
            ada.app.declared.find("orders").enqueue("charge", {"amount": 1}, delay=60)
            ada.app.jobs.change(job, priority=priority)
            ada.browser.eventually("window.told")
            ada.browser.evaluate("window.told = false")
        shifts = ada.browser.evaluate(SEEN_SINCE)
        assert max(shifts, default=0) < 0.01, (look.name, path, shifts)  # a history that grows by a line
        ada.browser.evaluate("document.querySelector('main').prepend(document.createElement('hr'))")
        ada.browser.eventually(f"shifts.length > {len(shifts)}")  # so it would have been noticed
