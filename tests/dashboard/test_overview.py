"""The overview and the queue pages: what needs attention, what has happened, queues, limits, running jobs, engines."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from hipq import Hipq, Wait, limit, per_lane
from hipq.answers.reports import Report, write_report
from hipq.dashboard.seldom import Seldom
from hipq.dashboard.site import Site
from hipq.job.progress import Report as Progress
from hipq.job.when import SECOND
from hipq.stores.claims import Claim
from tests.cli.conftest import eventually
from tests.dashboard.seen import Element, go, parsed, see
from tests.databases import sql
from tests.doctor.conftest import folder, maria_server, mariadb, postgres, server, sqlite, url

__all__ = ["folder", "maria_server", "mariadb", "postgres", "server", "sqlite", "url"]

LONG_AGO = 3600 * SECOND


@pytest.fixture
def app(url: str) -> Iterator[Hipq]:
    """A shop with an engine's code: orders have a limit, and charges wait for their answers."""
    app = Hipq("shop", url)
    orders = app.queue("orders", limits=[limit(4), per_lane(3)])
    orders.job("charge")(lambda _: Wait())
    orders.job("refund", retry=None)(lambda job: 1 // job.data)
    app.queue("mails").job("send")(lambda _: None)
    app.migrate()
    for queue in app.queues:
        queue.for_engine()
    yield app
    app.close()


@pytest.fixture
def site(app: Hipq) -> Site:
    return Site([app])


def judged(site: Site, url: str = "/") -> Element:
    """What needs attention, once it was looked at."""
    site.board.judgement.read()
    return see(site, url).one(id="attention")


def engine(app: Hipq, types: dict[str, list[str]], seconds: float = 3600) -> int:
    serves = {str(queue.number): types[queue.name] for queue in app.queues if queue.name in types}
    return app.store.take_lease(seconds, "web-1:812", json.dumps(serves), "1.2.3", app.store.now() - LONG_AGO)


def claim(app: Hipq, engine_id: int, queue: int, types: tuple[str, ...], count: int) -> None:
    assert len(app.store.turn(engine_id, [], [Claim(queue, types, count)], app.store.now()).won) == count


def figures(section: Element) -> dict[str, str]:
    """The figures of a queue, by their word."""
    links = section.one("div", class_="figures").all("a")
    return {one.one("span", class_="state").text: one.one("b").text for one in links}


def chart(page: Element, title: str) -> dict[str, Any]:
    """What is drawn under a title that begins like this."""
    (found,) = [one for one in page.all("figure") if one.one("figcaption").text.startswith(title)]
    return dict(json.loads(found.one("div", class_="plot").attributes["data-chart"]))


# -- nothing there ---------------------------------------------------------------------------------------------------
def test_an_empty_database_says_so(url: str) -> None:
    app = Hipq("shop", url)
    app.migrate()
    site = Site([app])
    assert "All is well" in judged(site).text
    assert "There are no queues in this database yet." in see(site, "/").text
    assert "There are no more queues." in see(site, "/queues").text
    app.close()


def test_a_database_that_nobody_has_migrated_says_what_to_do(postgres: str) -> None:
    app = Hipq("shop", postgres)
    app.queue("orders")
    for path in ("/", "/queues", "/queues/orders"):
        reply = go(Site([app]), path)
        assert reply.status == 503
        assert "hipq migrate" in parsed(reply).one("main").text
    app.close()


@pytest.mark.parametrize("away", ["sqlite:////nowhere/shop.db", "postgresql://ann:secret@127.0.0.1:1/shop"])
def test_a_database_that_is_away_is_said(away: str) -> None:
    app = Hipq("shop", away)
    app.queue("orders")
    reply = go(Site([app]), "/")
    assert reply.status == 503
    assert parsed(reply).one("main").one("p").text
    assert b"secret" not in reply.body
    app.close()


def test_a_queue_that_the_database_does_not_know_yet(site: Site, app: Hipq) -> None:
    app.queue("new")
    reply = go(site, "/queues/new")
    assert (reply.status, go(site, "/queues/none").status) == (404, 404)
    assert "the database has no queue new yet" in parsed(reply).text
    assert {one.name for one in app.store.queues()} == {"orders", "mails"}


# -- what needs attention --------------------------------------------------------------------------------------------
def test_the_first_view_does_not_wait_for_doctor(site: Site) -> None:
    looks = threading.Event()
    read = site.board.judgement._read
    site.board.judgement = Seldom(lambda: (looks.wait(), read())[1])
    assert "The first look is under way." in see(site, "/").one("section", id="attention").text
    looks.set()
    assert eventually(lambda: "All is well" in see(site, "/").one("section", id="attention").text)


def test_all_is_well_is_one_calm_line(site: Site, app: Hipq) -> None:
    engine(app, {"orders": ["charge", "refund"], "mails": ["send"]})
    found = judged(site)
    assert not found.all("li")
    assert "All is well, as far as hipq looks: 2 queues, 1 engine," in found.text
    assert found.one("time").attributes["datetime"]


def test_a_queue_that_no_engine_serves(site: Site, app: Hipq) -> None:
    engine(app, {"mails": ["send"]})
    first = app.queues[0].enqueue("charge")
    app.queues[0].enqueue("refund", 1)
    (said,) = judged(site).all("li")
    assert "orders : 2 jobs have been due for" in said.text
    assert "no engine that works on its queue is alive" in said.text
    assert "Start a worker: hipq worker MODULE:APP -q orders" in said.text
    assert [one.attributes["href"] for one in said.all("a")] == ["/queues/orders", f"/jobs/{first}"]
    assert see(site, "/queues/orders").one("div", id="attention").all("li")
    assert not see(site, "/queues/mails").one("div", id="attention").all("li")
    assert "no engine serves it" in see(site, "/queues/orders").one("section", id="now").text


def test_a_limit_held_by_dead_work(site: Site, app: Hipq) -> None:
    app.queues[0].enqueue_many("charge", [1, 2], lane="east")
    dead = engine(app, {"orders": ["charge"]})
    claim(app, dead, app.queues[0].number, ("charge",), 2)
    app.store.renew_lease(dead, 0)
    engine(app, {"mails": ["send"]})
    worst = judged(site).all("li")[0]
    assert worst.attributes["class"] == "is-bad"
    assert "2 jobs are in the hands of engine" in worst.text
    assert "hold 2 units of the queue's limits, and no engine of this queue is there" in worst.text
    rows = see(site, "/").one("div", id="limits").rows()
    assert [(row[1], row[3]) for row in rows] == [("lane east", "2 of 3"), ("whole queue", "2 of 4")]
    assert rows[0][4].count("whose engine is gone") == 2
    assert f"engine {dead}, gone" in see(site, "/").one("section", id="running").text


def test_answers_overdue_and_a_listener_that_lags(site: Site, app: Hipq, url: str) -> None:
    orders = app.queues[0]
    job_id = orders.enqueue("charge", timeout=36_000, key="17")
    app.run(["orders"], until_empty=True)
    engine(app, {"orders": ["charge", "refund"], "mails": ["send"]})
    counters = "queue, starts, job_type, started, answer_10"
    recent = app.store.now() - 120 * SECOND
    for kind in ("charge", "refund"):
        sql(url, f"INSERT INTO hipq_activity ({counters}) VALUES ({orders.number}, {recent}, '{kind}', 50, 50)")
    assert not judged(site).all("li")
    since = app.store.now() - 2 * LONG_AGO
    wait = json.dumps(json.loads(app.jobs.row(job_id).wait) | {"since": since})
    sql(url, f"UPDATE shop_orders SET wait = '{wait}' WHERE id = {job_id}")
    (overdue,) = judged(site).all("li")
    assert "1 job of type charge waits for its answer for longer than usual: 95 % of them come within" in overdue.text
    assert f"the first is job\xa0{job_id}" in overdue.text or f"the first is job {job_id}" in overdue.text

    lagging = Report("kafka://broker/paid", "web-1:3", {"matched": 4}, 12_040, "", False)
    write_report(app.store, "shop", "orders.charge kafka://broker/paid", lagging)
    overdue, lag = judged(site).all("li")
    assert "answers come back on kafka://broker/paid" in overdue.text
    assert "the listener of kafka://broker/paid, for shop.orders.charge, is 12,040 messages behind" in lag.text.lower()

    write_report(app.store, "shop", "orders.charge kafka://broker/paid", lagging._replace(gone=True, lag=None))
    assert "Nobody listens to kafka://broker/paid" in judged(site).all("li")[1].text


def test_what_is_read_seldom_rests_twenty_times_as_long_as_it_took() -> None:
    steady, reads = [0.0], [0]

    def slow() -> int:
        steady[0] += 3.0
        reads[0] += 1
        return reads[0]

    seldom = Seldom(slow, steady=lambda: steady[0])
    assert seldom.latest(patience=10) == 1
    for at, expected in ((4.0, 1), (62.0, 1), (63.5, 2)):
        steady[0] = max(steady[0], at)
        seldom.latest()
        eventually(lambda: seldom.latest() == expected)  # noqa: B023
    assert reads[0] == 2


# -- queues, limits, running jobs, engines ---------------------------------------------------------------------------
def test_queues_with_their_figures_and_where_these_lead(site: Site, app: Hipq) -> None:
    orders = app.queues[0]
    orders.enqueue_many("refund", [0, 0, 1])
    orders.enqueue("charge", key="waits")
    app.run(["orders"], until_empty=True)
    orders.enqueue_many("charge", [1, 2], delay=3600)
    orders.enqueue("charge", lane="<b>east</b>")
    queue = see(site, "/").one("section", aria_label="Queue orders")
    expected = {"ready": "1", "scheduled": "2", "running": "0", "waiting": "1", "retrying": "0", "failed": "2"}
    assert figures(queue) == expected
    links = [one.attributes["href"] for one in queue.one("div", class_="figures").all("a")]
    assert links == [f"/jobs?queue=orders&state={word}" for word in expected]
    assert "oldest due" in queue.text
    assert "no engine serves it" in queue.text
    page = see(site, "/queues/orders")
    assert figures(page.one("section", id="now")) == expected
    assert "Rules : limit 4, 3 a lane; lanes are in one order." in page.one("p", class_="rules").text
    assert page.one("p", class_="rules").one("a").attributes["href"] == "/rules?queue=orders"


def test_running_jobs_engines_and_limits(site: Site, app: Hipq) -> None:
    orders = app.queues[0]
    first, second = map(int, orders.enqueue_many("charge", [1, 2], lane="<b>east</b>"))
    engine_id = engine(app, {"orders": ["charge"]})
    claim(app, engine_id, orders.number, ("charge",), 2)
    row = app.jobs.row(first)
    app.store.report([Progress(first, row.token, row.attempt, 0.4, "page 4 <i>of</i> 10")], app.store.now())
    for page in (see(site, "/"), see(site, "/queues/orders")):
        running = page.one("section", id="running")
        assert [cells[0] for cells in running.rows()] == [str(first), str(second)]
        assert "40% page 4 <i>of</i> 10" in running.text
        assert not page.all("i")
        ((number, label, *_, version, busy, lease, since),) = page.one("section", id="engines").rows()
        assert (number, label, version, busy, lease) == (str(engine_id), "web-1:812", "1.2.3", "2", "1h00m")
        assert since.startswith("1h00m")
        rows = page.one("div", id="limits").rows()
        assert [row[-2] for row in rows if "lane <b>east</b>" in row] == ["2 of 3"]
        assert {one.attributes["href"] for one in page.one("div", id="limits").all("a", class_="mono")} == {
            f"/jobs/{first}", f"/jobs/{second}"
        }  # fmt: skip


def test_a_pause_is_said(site: Site, app: Hipq) -> None:
    app.pause("orders", lane="east")
    app.pause("mails")
    assert "lane east paused" in see(site, "/").one("section", aria_label="Queue orders").text
    assert see(site, "/queues/mails").one("section", id="now").one("span", class_="chip").text == "paused"


def test_of_many_queues_the_busy_ones_are_shown(site: Site, app: Hipq) -> None:
    for number in range(22):
        assert app.queue(f"tenant_{chr(97 + number)}").number
    app.queue("zebra").enqueue_many("work", range(3))
    site.board.judgement.read()
    table = see(site, "/").one("div", id="queues")
    assert len(table.rows()) == 20
    assert table.rows()[0][0] == "zebra"
    assert table.one("a", class_="end").text == "all 25 queues"
    first = see(site, "/queues")
    rest = see(site, first.one("a", class_="button").attributes["href"])
    names = [row[0] for page in (first, rest) for row in page.rows()]
    assert names == sorted(queue.name for queue in app.queues)
    assert not rest.all("a", class_="button")


def test_parts_that_change_are_live_and_are_there_from_the_beginning(site: Site, app: Hipq) -> None:
    def live(path: str) -> list[str]:
        page = see(site, path)
        found = [one for one in page.all() if "data-live" in one.attributes]
        assert not [one for one in page.all("section") if not any(one in (part, *part.all()) for part in found)]
        return [one.attributes["id"] for one in found]

    before = [live(path) for path in ("/", "/queues/orders", "/queues")]
    assert [len(ids) for ids in before] == [len(set(ids)) for ids in before] == [6, 7, 1]
    app.queues[0].enqueue_many("charge", [1, 2])
    claim(app, engine(app, {"orders": ["charge"]}), app.queues[0].number, ("charge",), 1)
    site.board.judgement.read()
    assert [live(path) for path in ("/", "/queues/orders", "/queues")] == before
    empty = Hipq("farm", app.url)
    assert [one.attributes["id"] for one in see(Site([empty]), "/").all() if "data-live" in one.attributes] == before[0]
    empty.close()


# -- what has happened -----------------------------------------------------------------------------------------------
def test_charts_come_from_the_counters(site: Site, app: Hipq) -> None:
    app.queues[0].enqueue_many("refund", [0, 1, 1])
    app.queues[0].enqueue("charge", key="17")
    app.run(until_empty=True)
    app.answer("orders", "charge", "17", "paid")
    app.queues[1].enqueue("send")
    app.run(until_empty=True)
    for over in ("hour", "day", "week"):
        past = see(site, f"/?over={over}").one(id="past")
        assert f"In the last {over}: 5 runs began, 5 jobs ended, 1 without success" in past.text
        rates = chart(past, "Jobs a minute")
        assert [line["name"] for line in rates["lines"]] == ["started", "finished", "failed"]
        assert {len(line["values"]) for line in rates["lines"]} == {len(rates["x"])}
        assert rates["x"] == sorted(rates["x"])
        assert [line["name"] for line in chart(past, "Run time: p50")["lines"]] == ["p50", "p95"]
        assert any(chart(past, "Time until the answer: p50")["lines"][1]["values"])
    page = see(site, "/queues/orders")
    assert "In the last hour: 4 runs began, 4 jobs ended" in page.one(id="past").text
    refund, charge = page.one("div", id="types").rows()
    assert refund[:4] == ["refund", "3", "2", "0"]
    assert charge[:3] == ["charge", "1", "1"]
    assert charge[-1].startswith("p50 ")


def test_the_counters_of_very_many_queues_are_summed_up_beside_the_pages(
    site: Site, app: Hipq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq.dashboard.board.MANY", 1)
    monkeypatch.setattr("hipq.dashboard.board.PATIENCE", 0.0)
    app.queues[1].enqueue("send")
    app.run(until_empty=True)
    may_read, read = threading.Event(), Seldom.read
    monkeypatch.setattr(Seldom, "read", lambda seldom: read(seldom) if may_read.wait(10) else None)
    assert "are being summed up: look again in a moment" in see(site, "/").one(id="past").text
    may_read.set()
    eventually(lambda: "In the last hour: 1 run began, 1 job ended." in see(site, "/").one(id="past").text)


def test_figures_say_how_old_they_are_without_an_engine(site: Site, app: Hipq, url: str) -> None:
    app.queues[1].enqueue("send")
    app.run(until_empty=True)
    sql(url, f"UPDATE hipq_activity SET starts = starts - {3 * LONG_AGO}")
    past = see(site, "/").one(id="past")
    assert "No engine is alive: the newest of these figures is from" in past.text
    assert past.one("time").text.startswith(("3h", "4h"))
    assert "Nothing ran in the last hour." in past.text
    said = see(site, "/queues/mails").one(id="past").text
    assert "No engine serves this queue: the newest of these figures is from" in said
    engine(app, {"mails": ["send"]})
    assert "No engine is alive" not in see(site, "/").one(id="past").text


def test_a_span_that_there_is_not(site: Site) -> None:
    reply = go(site, "/?over=<b>year")
    assert reply.status == 400
    assert "over=<b>year is none of them" in parsed(reply).text
    assert go(site, "/queues/orders?over=year").status == 400


def test_several_instances_of_a_database(app: Hipq, url: str) -> None:
    with ExitStack() as stack:
        farm = Hipq("farm", url)
        stack.callback(farm.close)
        farm.queue("orders").enqueue("milk")
        both = Site([app, farm])
        shown = [
            one.attributes["aria-label"] for one in see(both, "/").all("section") if "aria-label" in one.attributes
        ]
        assert shown == ["Queue shop.orders", "Queue shop.mails", "Queue farm.orders"]
        assert figures(see(both, "/queues/farm.orders"))["ready"] == "1"
        assert "farm.orders" in judged(both).text
        assert "farm" not in judged(Site([app])).text
