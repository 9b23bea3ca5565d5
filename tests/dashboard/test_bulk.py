"""Things done to many jobs: what is asked first, what is done in the background, and what undoes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from hipq.dashboard import bulk
from hipq.dashboard.bulk import Chosen
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role
from hipq.errors import StoreUnavailable
from hipq.job.states import FINAL, READY, SCHEDULED
from hipq.stores.filters import Filter
from tests.dashboard.seen import Element, do, go, parsed, see
from tests.dashboard.shop_jobs import filled, queue, shop


@pytest.fixture
def site(store_kind: str, tmp_path: Path) -> Iterator[Site]:
    with shop(store_kind, tmp_path) as site:
        yield site


def fields(page: Element) -> dict[str, Any]:
    """The fields of the page's form, as a browser sends them."""
    form: dict[str, Any] = {}
    for one in page.one("form", method="post").all("input"):
        form.setdefault(one.attributes["name"], []).append(one.attributes.get("value", ""))
    return form


def run(site: Site, question: str, **more: str) -> Element:
    """Ask, confirm, and wait for the end: the page of the operation."""
    where = do(site, "/bulk", {**fields(see(site, question, Role.OPERATE)), **more})
    return ended(site, where)


def ended(site: Site, where: str) -> Element:
    thread = site.operations.get(where.removeprefix("/bulk/")).thread
    thread.join(60)
    assert not thread.is_alive()
    return see(site, where, Role.OPERATE)


def figures(page: Element) -> list[str]:
    """How it ended, how many were done, how many left alone."""
    return [page.one(id="progress").one("h2").text, *(one.text for one in page.one(class_="figures").all("b"))]


def undo(site: Site, page: Element) -> Element:
    return ended(site, do(site, page.one("form").attributes["action"], {}))


def many(site: Site, number: int, **options: Any) -> list[int]:
    return [queue(site).enqueue("charge", {"n": n}, key=f"k-{n}", **options) for n in range(number)]


def phases(site: Site) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in site.store.find(Filter(queue(site).number, limit=5_000), brief=True):
        found[row.phase] = found.get(row.phase, 0) + 1
    return found


def test_it_asks_first_and_says_of_how_many(site: Site) -> None:
    ids = many(site, 3, delay=60)
    page = see(site, f"/bulk?do=cancel&job={ids[0]}&job={ids[2]}&job={ids[0]}", Role.OPERATE)
    assert page.one("h1").text == "Cancel 2 jobs?"
    assert fields(page)["job"] == [str(ids[0]), str(ids[2])]
    assert "cannot be undone" in page.text
    page = see(site, "/bulk?do=change&all=1&prefix=k-&state=scheduled", Role.OPERATE)
    assert page.one("h1").text == "Change 3 jobs?"
    assert [chip.text for chip in page.all(class_="chip")] == ["state scheduled", "key begins with k-"]
    assert {"csrf", "once", "at", "priority", "prefix", "state", "all", "until", "do"} == fields(page).keys()
    page = see(site, "/bulk?do=requeue&all=1", Role.OPERATE)
    assert page.one("h1").text == "Requeue 0 jobs?"
    assert not page.all("button")
    assert phases(site) == {SCHEDULED: 3}


def test_some_hundred_jobs_are_cancelled_and_added_again(site: Site) -> None:
    many(site, 350, delay=60)
    queue(site).enqueue("refund", key="another", delay=60)
    page = run(site, "/bulk?do=cancel&all=1&type=charge&queue=orders", reason="a wrong import")
    assert page.one("h1").text == "Cancel 350 jobs"
    assert figures(page) == ["Done", "350", "0"]
    (one,) = site.apps[0].jobs("orders", key="k-7")
    assert (one.code, one.fault.message if one.fault else "") == ("cancelled", "a wrong import")
    assert phases(site) == {"done": 350, SCHEDULED: 1}
    page = undo(site, page)
    assert page.one("h1").text == "Requeue 350 jobs that were cancelled"
    assert figures(page) == ["Done", "350", "0"]
    assert phases(site) == {"done": 350, READY: 350, SCHEDULED: 1}


def test_requeued_jobs_can_be_cancelled(site: Site) -> None:
    ids = filled(site)
    page = run(site, "/bulk?do=requeue&all=1&state=error")
    assert figures(page) == ["Done", "1", "0"]
    assert site.apps[0].jobs.count("orders", key="raise-1") == 2
    assert figures(undo(site, page)) == ["Done", "1", "0"]
    assert [one.code for one in site.apps[0].jobs("orders", key="raise-1")] == ["cancelled", "error"]
    page = run(site, f"/bulk?do=requeue&job={ids['ok-1']}&job={ids['later-1']}")
    assert figures(page) == ["Done", "1", "1"]
    assert f"job {ids['later-1']} is initial (scheduled): it has not ended" in page.text


@pytest.mark.parametrize("choice", ["all=1&prefix=k-", "all=1&payload=n%3D7", "all=1&lane=east", "all=1&since=1h"])
def test_a_change_of_time_and_priority_can_be_undone(site: Site, choice: str) -> None:
    many(site, 220, delay=60, priority=7, lane="east")
    before = {row.id: (row.scheduled_run_time, row.priority) for row in _rows(site)}
    page = run(site, f"/bulk?do=change&{choice}", at="2h", priority="-3")
    changed = 1 if "payload" in choice else 220
    assert figures(page) == ["Done", str(changed), "0"]
    assert sum(row.priority == -3 for row in _rows(site)) == changed
    page = undo(site, page)
    assert figures(page) == ["Done", str(changed), "0"]
    assert {row.id: (row.scheduled_run_time, row.priority) for row in _rows(site)} == before
    assert not page.all("form")


def test_jobs_that_run_now_are_put_back_unless_they_have_started(site: Site) -> None:
    ids = filled(site)
    page = run(site, "/bulk?do=run&all=1&queue=orders")
    assert figures(page) == ["Done", "3", "1"]
    assert f"job {ids['wait-1']} has sent its request" in page.text
    site.apps[0].run(["orders"], until_empty=True)
    page = undo(site, page)
    assert figures(page)[0] == "Done"
    assert sum(map(int, figures(page)[1:])) == 3
    assert site.apps[0].job(ids["later-1"]).code == "ok"


def _rows(site: Site) -> list[Any]:
    return list(site.store.find(Filter(queue(site).number, limit=5_000), brief=True))


def test_jobs_that_are_added_meanwhile_are_not_meant(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    many(site, 150, delay=60)
    rows = Chosen.rows

    def with_a_producer(self: Chosen, store: Any) -> Iterator[Any]:
        for step in rows(self, store):
            queue(site).enqueue("charge", delay=60)
            yield step

    monkeypatch.setattr(Chosen, "rows", with_a_producer)
    assert figures(run(site, "/bulk?do=cancel&all=1")) == ["Done", "150", "0"]


def test_it_can_be_stopped_and_is_seen_meanwhile(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    many(site, 300, delay=60)
    go_on, at_work = Event(), Event()
    rows = Chosen.rows

    def slowly(self: Chosen, store: Any) -> Iterator[Any]:
        for number, step in enumerate(rows(self, store)):
            if number == 1:
                at_work.set()
                assert go_on.wait(60)
            yield step

    monkeypatch.setattr(Chosen, "rows", slowly)
    where = do(site, "/bulk", {"do": "cancel", "all": "1"})
    assert at_work.wait(60)
    page = see(site, where, Role.OPERATE)
    assert figures(page) == ["At work", "100", "0"]
    assert page.one(id="progress").attributes.keys() >= {"data-live"}
    (link,) = see(site, "/jobs", Role.OPERATE).one(id="operations").all("a")
    assert link.attributes["href"] == where
    do(site, page.one("form").attributes["action"], {})
    assert figures(see(site, where, Role.OPERATE)) == ["Stopping", "100", "0"]
    go_on.set()
    assert figures(ended(site, where)) == ["Stopped", "100", "0"]
    assert phases(site) == {"done": 100, SCHEDULED: 200}


def test_only_some_are_at_work_at_once_and_only_some_are_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (job_id,) = many(site, 1, delay=60)
    go_on = Event()

    def held(_self: Chosen, _store: Any) -> Iterator[Any]:
        assert go_on.wait(60)
        yield []

    with monkeypatch.context() as patch:
        patch.setattr(Chosen, "rows", held)
        form = {"do": "run", "job": str(job_id)}
        started = [do(site, "/bulk", form) for _ in range(bulk.AT_ONCE)]
        refused = go(site, "/bulk", Role.OPERATE, form)
        assert refused.status == 409
        assert "operations are at work already" in parsed(refused).text
        go_on.set()
        for where in started:
            ended(site, where)
    for _ in range(bulk.KEPT):
        where = do(site, "/bulk", form)
        ended(site, where)
    assert len(site.operations.all) == bulk.KEPT
    gone = go(site, started[0], Role.OPERATE)
    assert gone.status == 404
    assert "not known here" in parsed(gone).text


def test_a_database_that_goes_away_ends_it_with_a_sentence(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_self: Chosen, _store: Any) -> Iterator[Any]:
        raise StoreUnavailable("the database is away")
        yield

    (job_id,) = many(site, 1, delay=60)
    monkeypatch.setattr(Chosen, "rows", away)
    page = run(site, f"/bulk?do=run&job={job_id}")
    assert figures(page) == ["Failed", "0", "0"]
    assert "the database is away" in page.text


HOSTILE = {
    "do=destroy&all=1": 400,
    "all=1": 400,
    "do=cancel": 400,
    "do=cancel&job=" + "9" * 5_000: 400,
    "do=cancel&job=0": 400,
    "do=cancel&job=a%00b": 400,
    "do=cancel&job=9223372036854775807": 404,
    "do=cancel&all=1&state=nothing": 400,
    "do=cancel&all=1&queue=nothing": 404,
    "do=cancel&" + "&".join(f"job={(n << 16) | 1}" for n in range(1, 1_002)): 400,
}


@pytest.mark.parametrize("query", HOSTILE)
def test_what_cannot_be_done_is_refused_in_a_sentence(site: Site, query: str) -> None:
    reply = go(site, f"/bulk?{query}", Role.OPERATE)
    assert reply.status == HOSTILE[query]
    assert 10 < len(parsed(reply).one("main").one("p").text) < 400


@pytest.mark.parametrize(
    "form",
    [
        {"do": "change"},
        {"do": "change", "priority": "soon"},
        {"do": "change", "priority": "9" * 5_000},
        {"do": "change", "priority": "-2147483649"},
        {"do": "change", "at": "0000-01-01"},
        {"do": "change", "at": "10000-01-01"},
        {"do": "change", "at": "tomorrow"},
        {"do": "change", "at": "a\x00b"},
        {"do": "cancel", "reason": "a\x00b"},
        {"do": "cancel", "reason": "r" * 1_001},
    ],
)
def test_a_form_that_is_not_right_is_shown_again_with_what_is_wrong(site: Site, form: dict[str, str]) -> None:
    (job_id,) = many(site, 1, delay=60)
    reply = go(site, "/bulk", Role.OPERATE, {**form, "job": str(job_id)})
    assert reply.status == 400
    page = parsed(reply).one("main")
    assert len(page.one(role="alert").text) > 10
    assert fields(page)["job"] == [str(job_id)]
    assert phases(site) == {SCHEDULED: 1}
    assert not site.operations.all


def test_jobs_that_are_gone_or_have_ended_are_left_alone(site: Site) -> None:
    ids = filled(site)
    gone = (1_000 << 16) | queue(site).number
    page = run(site, f"/bulk?do=cancel&job={ids['ok-1']}&job={gone}&job={ids['later-1']}")
    assert figures(page) == ["Done", "1", "2"]
    assert f"job {ids['ok-1']} is final (ok) and stays so" in page.text
    assert f"there is no job {gone}" in page.text
    assert site.store.get(ids["ok-1"]).state == FINAL  # type: ignore[union-attr]


def test_it_takes_the_role_and_a_dashboard_that_is_not_read_only(site: Site) -> None:
    (job_id,) = many(site, 1, delay=60)
    where = do(site, "/bulk", {"do": "run", "job": str(job_id)})
    ended(site, where)
    for url, form in ((f"/bulk?do=run&job={job_id}", None), ("/bulk", {"do": "run"}), (where, None)):
        assert go(site, url, Role.VIEW, form).status == 403
    for url in (f"{where}/stop", f"{where}/undo"):
        assert go(site, url, Role.VIEW, {}).status == 403
    site.read_only = True
    assert go(site, "/bulk", Role.ADMIN, {"do": "run", "job": str(job_id)}).status == 403
    assert not see(site, "/jobs").all("input", type="checkbox")
