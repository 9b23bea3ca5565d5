"""Pages that keep themselves up to date, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hipq import Hipq
from hipq.dashboard import live
from hipq.dashboard.application import Dashboard
from tests.daemon.browser import Browser
from tests.dashboard.serving import Served, Watched, eventually
from tests.dashboard.test_live import is_idle

PRIORITY = "document.querySelector('#job-{} .priority').textContent"
OFFLINE = "document.querySelector('#offline')"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def page(chromium: Browser, served: Served) -> Iterator[Browser]:
    chromium.requested.clear()
    chromium.complaints.clear()
    yield chromium
    chromium.open("about:blank")
    assert [url for url in chromium.requested if not url.startswith((served.address, "about:"))] == []


@pytest.fixture
def jobs(shop: Hipq, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(live, "PERIOD", 0.05)
    return [shop.queues[0].enqueue("charge", delay=60) for _ in range(3)]


def open_page(page: Browser, served: Served) -> None:
    assert page.open(f"{served.address}/watched/jobs?q=a%20b") == 200


def watch(page: Browser, served: Served, dashboard: Dashboard) -> None:
    open_page(page, served)
    eventually(lambda: dashboard.live._streams)


def changed(page: Browser, shop: Hipq, job_id: int, priority: int) -> None:
    shop.jobs.change(job_id, priority=priority)
    page.eventually(f"{PRIORITY.format(job_id)} === '{priority}'")


def test_a_row_changes_while_it_is_looked_at(
    page: Browser, served: Served, dashboard: Dashboard, shop: Hipq, watched: Watched, jobs: list[int]
) -> None:
    watch(page, served, dashboard)
    page.evaluate("document.addEventListener('hipq:updated', event => { (window.told ??= []).push(event.target.id); })")
    page.evaluate(f"document.getElementById('job-{jobs[0]}').mark = 1")
    changed(page, shop, jobs[1], 7)
    assert page.evaluate(f"document.getElementById('job-{jobs[0]}').mark") == 1, "the others stay"
    assert page.evaluate("window.told") == [f"job-{jobs[1]}"]
    assert page.complaints == []
    assert dict(watched.visits[-1].query) == {"q": ["a b"]}, "it is the page that the viewer has"


def test_what_somebody_uses_is_left_alone_until_then(
    page: Browser, served: Served, dashboard: Dashboard, shop: Hipq, watched: Watched, jobs: list[int]
) -> None:
    watched.parts["form"] = '<form method="post"><input name="why" id="why"></form><p>one</p>'
    watch(page, served, dashboard)
    page.click(f"document.querySelector('#job-{jobs[0]} input')")
    page.evaluate(f"getSelection().selectAllChildren(document.querySelector('#job-{jobs[1]} .state'))")
    shop.jobs.change(jobs[0], priority=7)
    shop.jobs.change(jobs[1], priority=7)
    changed(page, shop, jobs[2], 7)
    assert [page.evaluate(PRIORITY.format(job)) for job in jobs] == ["100", "100", "7"]
    page.evaluate("getSelection().removeAllRanges()")
    page.eventually(f"{PRIORITY.format(jobs[1])} === '7'")
    page.click(f"document.querySelector('#job-{jobs[0]} input')")
    page.eventually(f"{PRIORITY.format(jobs[0])} === '7'")
    page.enter("document.querySelector('#why')", "because")
    watched.parts["form"] = watched.parts["form"].replace("one", "two")
    changed(page, shop, jobs[2], 8)
    assert page.evaluate("document.querySelector('#form p').textContent") == "one"
    assert page.evaluate("document.querySelector('#why').value") == "because"
    page.evaluate("document.querySelector('#why').blur()")
    page.eventually("document.querySelector('#form p').textContent === 'two'")
    assert page.evaluate("document.querySelector('#form [name=csrf]').value") == "of this visitor"
    assert page.evaluate("document.querySelector('#form [name=once]').value.length") > 10


@pytest.mark.usefixtures("jobs")
def test_what_was_unfolded_or_folded_stays_so(
    page: Browser, served: Served, dashboard: Dashboard, watched: Watched
) -> None:
    part = '<details id="more"><summary>one</summary>x</details><details id="less" open><summary>y</summary>x</details>'
    watched.parts["part"] = part + '<details id="own"><summary>z</summary>x</details>'
    watch(page, served, dashboard)
    for name in ("more", "less"):
        page.click(f"document.querySelector('#{name} summary')")
    for number in ("two", "three"):
        watched.parts["part"] = watched.parts["part"].replace("one", "two").replace("two", number)
        page.eventually(f"document.querySelector('#more summary').textContent === '{number}'")
        assert page.evaluate("document.querySelector('#more').open && !document.querySelector('#less').open")
    watched.parts["part"] = watched.parts["part"].replace('id="own"', 'id="own" open').replace("three", "four")
    page.eventually("document.querySelector('#more summary').textContent === 'four'")
    assert page.evaluate("document.querySelector('#own').open"), "nobody has touched it"


def test_a_hidden_tab_costs_nothing(
    page: Browser, served: Served, dashboard: Dashboard, shop: Hipq, watched: Watched, jobs: list[int]
) -> None:
    watch(page, served, dashboard)
    with page.another_tab():
        assert page.evaluate("document.hidden")
        eventually(lambda: is_idle(dashboard))
        shop.jobs.change(jobs[0], priority=7)
        rendered = len(watched.visits)
        assert page.evaluate(PRIORITY.format(jobs[0])) == "100"
    page.eventually(f"{PRIORITY.format(jobs[0])} === '7'")
    assert watched.visits[rendered:], "it follows again"
    assert page.evaluate(f"{OFFLINE}.hidden")


def test_a_lost_server_is_said_and_it_resumes(
    page: Browser, served: Served, dashboard: Dashboard, shop: Hipq, jobs: list[int]
) -> None:
    watch(page, served, dashboard)
    (stream,) = dashboard.live._streams
    stream.get_loop().call_soon_threadsafe(dashboard.stop)
    served.stop()
    page.eventually(f"!{OFFLINE}.hidden")
    dashboard.live._is_stopping = False
    served.start()
    shop.jobs.change(jobs[0], priority=7)
    page.eventually(f"{PRIORITY.format(jobs[0])} === '7'")
    assert page.evaluate(f"{OFFLINE}.hidden")


def test_a_viewer_can_pause(page: Browser, served: Served, dashboard: Dashboard, shop: Hipq, jobs: list[int]) -> None:
    watch(page, served, dashboard)
    page.click("document.querySelector('#pause')")
    assert page.evaluate("document.querySelector('#pause').getAttribute('aria-pressed')") == "true"
    eventually(lambda: is_idle(dashboard))
    shop.jobs.change(jobs[0], priority=7)
    page.click("document.querySelector('#pause')")
    page.eventually(f"{PRIORITY.format(jobs[0])} === '7'")


def test_without_streams_the_page_is_polled(
    page: Browser, served: Served, dashboard: Dashboard, shop: Hipq, watched: Watched, jobs: list[int]
) -> None:
    watched.mode = ' data-live-mode="poll"'
    open_page(page, served)
    changed(page, shop, jobs[0], 7)
    assert not any("/live?" in url for url in page.requested)
    rendered = watched.visits[-1]
    assert rendered.is_fragment
    assert dict(rendered.query) == {"q": ["a b"]}
    page.click("document.querySelector('#pause')")
    served.stop()
    served.start()
    page.click("document.querySelector('#pause')")
    changed(page, shop, jobs[0], 8)
    assert is_idle(dashboard)


def test_it_may_be_mounted_below_any_path(page: Browser, dashboard: Dashboard, shop: Hipq, jobs: list[int]) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    host = Served(Starlette(routes=[Mount("/tools/hipq", dashboard)]))
    try:
        assert page.open(f"{host.address}/tools/hipq/watched/jobs") == 200
        eventually(lambda: dashboard.live._streams)
        changed(page, shop, jobs[0], 7)
        page.open("about:blank")
        page.requested.clear()
    finally:
        host.stop()


def test_the_list_of_jobs_is_live(
    page: Browser, served: Served, dashboard: Dashboard, shop: Hipq, jobs: list[int]
) -> None:
    shown = "document.querySelector('#rows').textContent"
    assert page.open(f"{served.address}/jobs") == 200
    eventually(lambda: dashboard.live._streams)
    assert page.evaluate("document.querySelectorAll('#rows tr').length") == len(jobs)
    shop.queues[0].enqueue("charge", key="the-new-one")
    page.eventually(f"{shown}.includes('the-new-one')")
    assert page.complaints == []
