"""The waiter's pages: what waits until when, who carries it to SQS, and what can be done to a message."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq
from hipq.dashboard import asgi, waiter_pages
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role
from hipq.errors import HipqError
from hipq.waiter import Waiter, parked
from hipq.waiter.item import Scheduled
from hipq.waiter.poller_notes import FORGOTTEN, PollerNote
from tests.dashboard.hostile import TEXTS, faults
from tests.dashboard.seen import Element, do, go, parsed, see
from tests.dashboard.serving import eventually
from tests.dashboard.visiting import SECRETS, TOKENS, Browser
from tests.waiter.cloud import HOUR, Clock, Cloud, message
from tests.waiter.conftest import cloud

__all__ = ["cloud"]

DAY = 24 * HOUR


def site_of(waiter: Waiter, **more: Any) -> Site:
    return asgi(waiter=waiter, authenticate=lambda _: "admin", **more).site


def figures(page: Element) -> dict[str, str]:
    return {one.one("span").text: one.one("b").text for one in page.one(class_="figures").all("div")}


def bars(figure: Element) -> list[int]:
    return [int(count) for _, count in figure.one("table").rows()]


# -- what waits ------------------------------------------------------------------------------------------------------
def test_what_waits_is_counted_by_hours_and_days(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    ahead = [-60, -30, 0.5 * HOUR, 1.5 * HOUR, 1.7 * HOUR, 23.5 * HOUR, 2.5 * DAY, 13.5 * DAY, 15 * DAY, 300 * DAY]
    cloud.fill(queue, [message(queue, "x", one) for one in ahead])
    page = see(site_of(waiter), "/waiter")
    said = figures(page)
    assert said.pop("the first was due").endswith(" ago")
    assert said == {"wait": "10", "due, and not sent yet": "2", "in more than two weeks": "2"}
    hours, days = page.all("figure")
    assert bars(hours) == [3, 2, *[0] * 21, 1]
    assert bars(days) == [6, 0, 1, *[0] * 10, 1]


def test_of_very_many_the_first_are_counted_and_it_is_said_how_far(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, waiter = cloud.with_table()
    cloud.fill(queue, [message(queue, "x", n * HOUR) for n in range(1, 8)])
    monkeypatch.setattr(parked, "MOST", 7)
    assert figures(see(site_of(waiter), "/waiter"))["wait"] == "7"
    monkeypatch.setattr(parked, "MOST", 5)
    page = see(site_of(waiter), "/waiter")
    assert (figures(page)["wait"], "There are more: these are the first ones, up to" in page.text) == ("5+", True)


def test_a_look_is_shown_again_for_a_while(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    site = site_of(waiter)
    assert "Nothing waits here." in see(site, "/waiter").text
    waiter.send(queue, "later", delay=DAY)
    assert "Nothing waits here." in see(site, "/waiter").text, "each look costs reads"


def test_queues_without_a_table_and_a_cloud_that_is_away_are_said(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = cloud.name()
    assert f"hipq waiter create-table {name}" in see(site_of(cloud.waiter(name)), "/waiter").text
    away = cloud.waiter(name, endpoint="http://127.0.0.1:1")
    monkeypatch.setattr(waiter_pages, "PATIENCE", 60.0)
    assert "127.0.0.1:1" in see(site_of(away), "/waiter").text
    assert go(site_of(cloud.waiter()), "/waiter").status == 200
    assert go(site_of(cloud.waiter(name)), f"/waiter/messages?table={name}").status == 404


# -- the messages ----------------------------------------------------------------------------------------------------
def test_messages_are_listed_page_by_page_the_next_one_first(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiter_pages, "PAGE", 3)
    one, other, table = cloud.queue(), cloud.queue(), cloud.name()
    waiter = cloud.waiter(one, other, table=table)
    waiter.tables.create(one)
    cloud.fill(table, [message((one, other)[n % 2], f"body {n}", (n + 1) * HOUR, job_id=f"id {n}") for n in range(7)])
    site = site_of(waiter)
    assert f"for {one}, {other}" in see(site, "/waiter").text
    found, path = list[list[str]](), f"/waiter/messages?table={table}"
    while path:
        page = see(site, path)
        found += page.one("table").rows()
        path = next((link.attributes["href"] for link in page.all("a", rel="next")), "")
    assert [(row[0], row[1], row[3]) for row in found] == [
        (f"id {n}", (one, other)[n % 2], f"body {n}") for n in range(7)
    ]


def test_a_message_is_shown_whole_and_masked_whatever_is_in_it(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    texts = [text for text in TEXTS if len(text) < 1000]
    card = {"DataType": "String", "StringValue": "4111"}
    cloud.fill(
        queue,
        [
            message(queue, text, DAY, job_id=f"{n} {text}", group=text, error=text,
                    attributes={text: {"DataType": "String", "StringValue": text}, "card": card})
            for n, text in enumerate(texts)
        ],
    )  # fmt: skip
    waiter.send(queue, '{"card": "4111", "to": "ann"}', delay=HOUR, job_id="masked")
    site = site_of(waiter, mask=["card"])
    html = go(site, f"/waiter/messages?table={queue}").body.decode()
    assert (faults(html), "4111" in html) == ([], False)
    links = [one.attributes["href"] for one in see(site, f"/waiter/messages?table={queue}").one("tbody").all("a")]
    assert len(links) == len(texts) + 1
    for link in links:
        html = go(site, link).body.decode()
        assert (faults(html), "4111" in html) == ([], False), link
    assert '"card": "•••"' in see(site, f"/waiter/message?queue={queue}&id=masked").one("pre").text


def test_a_message_is_put_to_another_time_and_deleted(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    waiter.send(queue, "x", delay=DAY, job_id="a+b")
    site, where = site_of(waiter), f"/waiter/message?queue={queue}&id=a%2Bb"
    asked = {"queue": queue, "id": "a+b"}
    assert do(site, "/waiter/reschedule", {**asked, "at": "2030-01-15 08:00"}) == f"{where}&done=rescheduled"
    (one,) = waiter.list(queue)
    assert one.at.isoformat() == "2030-01-15T08:00:00+00:00"
    page = see(site, f"{where}&done=rescheduled")
    assert page.one(role="status").text == "The message has another time."
    wrong = go(site, "/waiter/reschedule", Role.OPERATE, {**asked, "at": "soon"})
    assert (wrong.status, "the time must be how long from now" in parsed(wrong).one(role="alert").text) == (400, True)
    assert do(site, "/waiter/cancel", asked) == "/waiter?done=cancelled"
    assert list(waiter.list(queue)) == []
    assert go(site, where).status == go(site, "/waiter/cancel", Role.OPERATE, asked).status == 404
    assert go(site, "/waiter/cancel", Role.OPERATE, {"queue": "another", "id": "a+b"}).status == 404


def test_what_a_poller_is_sending_is_not_offered_and_cannot_be_deleted(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table()
    until = int((time.time() + 60) * 1e6)
    claimed = message(queue, "x", 60, job_id="sent", claimed_by="p", claimed_until=until)
    died = message(queue, "x", 60, job_id="died", claimed_by="p", claimed_until=until - 120_000_000)
    _put(cloud, queue, claimed, died)
    site = site_of(waiter)
    page = see(site, f"/waiter/message?queue={queue}&id=sent")
    assert ("a poller is sending it" in page.text, page.all("form")) == (True, [])
    assert go(site, "/waiter/cancel", Role.OPERATE, {"queue": queue, "id": "sent"}).status == 409
    assert "it may be in SQS already" in see(site, f"/waiter/message?queue={queue}&id=died").text
    assert do(site, "/waiter/cancel", {"queue": queue, "id": "died"}) == "/waiter?done=maybe"


def _put(cloud: Cloud, table: str, *messages: Scheduled) -> None:
    cloud.fill(table, messages)
    for one in messages:
        values = {":by": {"S": one.claimed_by}, ":until": {"N": str(one.claimed_until / 1e6)}}
        cloud.dynamodb.update_item(
            TableName=table, Key={"scheduler": {"S": "shoryuken-waiter"}, "job_id": {"S": one.job_id}},
            UpdateExpression="SET claimed_by = :by, claimed_until = :until", ExpressionAttributeValues=values,
        )  # fmt: skip


# -- who carries them ------------------------------------------------------------------------------------------------
def test_a_poller_is_seen_while_it_runs_and_gone_when_it_stopped(cloud: Cloud) -> None:
    queue, waiter = cloud.with_table(delay=0.05)
    cloud.fill(queue, [message(queue, "now", -1)])
    table = waiter.tables.of(queue)
    assert table
    waiter.poller_notes.write(table, PollerNote("old", waiter.clock.now() - FORGOTTEN - 1, 1, 0, 0))
    stop = threading.Event()
    thread = threading.Thread(target=waiter.run, args=(stop,))
    thread.start()
    try:
        eventually(lambda: [note.name for note in waiter.poller_notes.read(table)] not in ([], ["old"]))
        (row,) = see(site_of(waiter), "/waiter").one("tbody", **{"data-rows": ""}).all("tr")
        assert "at work" in row.text
        assert row.all("td")[4].text == "1", "what it sent"
        assert waiter.list(queue) == [], "no message is a poller's note"
    finally:
        stop.set()
        thread.join(30)
    assert waiter.poller_notes.read(table) == []
    assert "No poller has looked at these tables" in see(site_of(waiter), "/waiter").text


def test_a_poller_that_died_is_late_and_one_in_trouble_says_so(cloud: Cloud) -> None:
    clock = Clock()
    queue, waiter = cloud.with_table(clock=clock)
    table = waiter.tables.of(queue)
    assert table
    now = waiter.clock.now()
    waiter.poller_notes.write(table, PollerNote("web-1:7", now, 300, 5, 0, since=now))
    waiter.poller_notes.write(table, PollerNote("web-2:8", now - 1, 300, 5, 3, "no such queue <b>", now))
    rows = see(site_of(waiter), "/waiter").one("tbody", **{"data-rows": ""}).all("tr")
    assert [row.all("td")[1].text for row in rows] == ["at work", "in trouble"]
    assert "no such queue <b>" in rows[1].text
    clock.ahead = 400
    rows = see(site_of(waiter), "/waiter").one("tbody", **{"data-rows": ""}).all("tr")
    assert [row.all("td")[1].text for row in rows] == ["late or gone"] * 2


def test_a_poller_that_may_not_write_notes_sends_all_the_same(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue, waiter = cloud.with_table(delay=0.05)
    cloud.fill(queue, [message(queue, "now", -1)])

    def refused(*_: object) -> None:
        raise HipqError("AccessDenied")

    monkeypatch.setattr(waiter.poller_notes, "write", refused)
    stop = threading.Event()
    thread = threading.Thread(target=waiter.run, args=(stop,))
    thread.start()
    eventually(lambda: cloud.count(queue) == 0)
    stop.set()
    thread.join(30)
    assert caplog.text.count("the dashboard does not know of this poller: AccessDenied") == 1


# -- alone, and beside an instance -----------------------------------------------------------------------------------
def test_alone_it_needs_no_database_and_has_these_pages_only(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    queue, waiter = cloud.with_table()
    waiter.send(queue, "x", delay=DAY, job_id="one")
    caplog.set_level("INFO", "hipq")
    otto = Browser(asgi(waiter=waiter, tokens=TOKENS))
    assert otto.get("/waiter").location.startswith("/login")
    assert otto.log_in(SECRETS["otto"]).location == "/"
    assert otto.get("/").location == "/waiter"
    page = otto.get("/waiter")
    assert (page.status, faults(page.text)) == (200, [])
    assert "/jobs" not in page.text
    assert [otto.get(path).status for path in ("/jobs", "/audit", "/rules", "/health")] == [404, 404, 404, 200]
    otto.get(f"/waiter/message?queue={queue}&id=one")
    assert otto.post("/waiter/cancel", queue=queue, id="one").status == 303
    assert "otto (operate) from 192.0.2.1: waiter cancel /waiter/cancel" in caplog.text
    vera = Browser(asgi(waiter=waiter, tokens=TOKENS))
    vera.log_in(SECRETS["vera"])
    assert vera.get("/waiter").status == 200
    assert vera.post("/waiter/cancel", queue=queue, id="one").status == 403


def test_beside_an_instance_it_is_one_page_more_and_what_is_done_is_audited(cloud: Cloud, tmp_path: Path) -> None:
    queue, waiter = cloud.with_table()
    waiter.send(queue, "x", delay=DAY, job_id="one")
    app = Hipq("shop", f"sqlite:///{tmp_path}/shop.db")
    app.migrate()
    site = asgi(app, waiter=waiter, authenticate=lambda _: "admin").site
    page = parsed(go(site, "/waiter"))
    assert [link.text for link in page.one("nav", **{"aria-label": "Pages"}).all("a")] == [
        "Overview", "Jobs", "Answers", "Rules", "Waiter", "Audit",
    ]  # fmt: skip
    do(site, "/waiter/cancel", {"queue": queue, "id": "one"})
    (entry,) = app.store.audit_log(0, 10)
    assert (entry.action, entry.details) == ("waiter cancel", f'{{"queue":"{queue}","id":"one"}}')
    app.close()
