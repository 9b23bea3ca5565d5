"""The page of rules: limits tried and set, pauses, cron schedules, the picture of the next day."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from hipq import Hipq, Job, Queue, Wait, limit, per_lane, share, window
from hipq.dashboard.day import HOUR, STEP, day_of
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role
from hipq.job.when import SECOND
from hipq.job.windows import dump
from hipq.testing.clock import HandClock
from tests.dashboard.seen import do, go, see

MIDNIGHT = 1_767_225_600 * SECOND
"""2026-01-01 00:00 UTC."""


@pytest.fixture
def site(either_url: str) -> Iterator[Site]:
    app = Hipq("shop", either_url, clock=HandClock())
    orders = app.queue("orders", limits=[limit(4), share({"east": 50, "west": 50})], lane_by=_region)
    orders.job("charge")(lambda _: Wait())
    mails = app.queue("mails")
    mails.job("send", windows=[window("22:00", "05:00")])(lambda _: None)
    mails.job("report")(lambda _: None).cron("0 6 * * *")
    app.migrate()
    with app.working():
        pass  # an engine that starts writes down what the code says
    yield Site([app])
    app.close()


def _region(job: Job[dict[str, str]]) -> str:
    return job.data["region"]


@pytest.fixture
def orders(site: Site) -> Queue:
    """Two jobs of the east wait for their answers, and three of each region are due."""
    orders = site.queue("orders")
    for number in range(8):
        orders.enqueue("charge", {"region": "east" if number < 5 else "west"}, key=f"order-{number}")
    for job in orders.app.jobs("orders", oldest=True, limit=2):
        orders.app.jobs.change(job.id, priority=1)
    orders.app.run(until_empty=True)
    for job in orders.app.jobs("orders", lane="west", phase="waiting"):
        orders.app.cancel(job.id)
    return orders


def test_it_shows_what_jobs_hold_of_each_limit(site: Site, orders: Queue) -> None:
    assert orders.app.jobs.count("orders", lane="east", phase="waiting") == 2
    bars = see(site, "/rules").one("dl", class_="bars")
    names = [one.text for one in bars.all("dt")]
    assert dict(zip(names, [one.text for one in bars.all("dd")], strict=True)) == {
        "whole queue": "2 of 4",
        "east": "2 of 2",
        "west": "0 of 2",
    }


def test_a_limit_is_tried_on_the_jobs_that_are_due_before_it_is_set(site: Site, orders: Queue) -> None:
    page = see(site, "/rules/orders/try?most=10")
    assert page.one("table").rows() == [["east", "2", "0", "3"], ["west", "0", "1", "1"]]
    assert orders.app.store.rules(orders.number).most == 4, "a trial changes nothing"
    form = page.one("form", method="post")
    fields = {one.attributes["name"]: one.attributes["value"] for one in form.all("input", type="hidden")}
    do(site, form.attributes["action"], fields, Role.ADMIN)
    assert orders.app.store.rules(orders.number).most == 10


def test_a_trial_says_what_a_claim_then_does(site: Site, orders: Queue) -> None:
    found = site.apps[0].rules.try_limit("orders", [limit(6), per_lane(3)])
    assert (found.starts_before, found.starts_after) == ({"west": 1}, {"east": 1, "west": 1})
    site.apps[0].rules.set_limit("orders", [limit(6), per_lane(3)])
    orders.app.run(until_empty=True)
    waiting = [job.lane for job in orders.app.jobs("orders", phase="waiting")]
    assert sorted(waiting) == ["east"] * 3 + ["west"] * 1


def test_a_limit_below_what_runs_lets_nothing_start(site: Site, orders: Queue) -> None:
    assert "nothing starts until they are below it" in see(site, "/rules/orders/try?most=1&lane=1").text
    assert orders.app.rules.try_limit("orders", [limit(1)]).starts_after == {}


def test_limits_are_removed_and_taken_back(site: Site, orders: Queue) -> None:
    do(site, "/rules/orders/limit", {"to": "none"}, Role.ADMIN)
    assert orders.app.store.rules(orders.number).most == 0
    assert "set by an operator" in see(site, "/rules").one(id="queue-1").text
    do(site, "/rules/orders/limit", {"to": "code"}, Role.ADMIN)
    assert orders.app.store.rules(orders.number).most == 4


@pytest.mark.parametrize(
    "query",
    ["", "most=0", "most=x", "most=nan", "most=1e999", "shares=east=40", "most=5&shares=east", "rates=5", "lane=-1"],
)
def test_limits_that_cannot_be_are_refused_in_a_sentence(site: Site, query: str) -> None:
    reply = go(site, f"/rules/orders/try?{query}")
    assert reply.status == 400
    assert (
        go(site, "/rules/orders/limit", form=dict(pair.split("=", 1) for pair in query.split("&") if pair)).status
        == 400
    )


def test_queues_lanes_and_types_are_paused_and_go_on(site: Site) -> None:
    store, number = site.store, site.queue("mails").number
    do(site, "/rules/mails/pause", {"to": "paused"})
    assert store.rules(number).paused
    assert "paused" in see(site, "/rules").one(id="queue-2").text
    do(site, "/rules/mails/pause", {"to": "resumed"})
    do(site, "/rules/mails/pause", {"to": "paused", "type": "send"})
    do(site, "/rules/mails/pause", {"to": "paused", "lane": "east"})
    assert (store.rules(number).paused, store.rules(number).paused_types) == (False, ("send",))
    forms = see(site, "/rules").one(id="limits-2").all("form")
    assert len(forms) == 2
    for form in forms:
        fields = {one.attributes["name"]: one.attributes["value"] for one in form.all("input")}
        do(site, form.attributes["action"], fields)
    assert store.rules(number).plain
    do(site, "/rules/mails/pause", {"to": "paused"})
    for unclear in ({}, {"to": "pause"}):
        assert go(site, "/rules/mails/pause", form=unclear).status == 400
    assert store.rules(number).paused


def test_the_audit_log_says_what_the_rules_were_changed_to(site: Site) -> None:
    do(site, "/rules/orders/limit", {"most": "9", "rates": "50/1"}, Role.ADMIN)
    do(site, "/rules/mails/pause", {"to": "paused", "type": "send"})
    assert [msgspec.json.decode(entry.details) for entry in site.store.audit_log(0, 10)] == [
        {"to": "paused", "type": "send"},
        {"most": "9", "rates": "50/1"},
    ]


@pytest.mark.parametrize("most", ["1", "0.5", "1000", "1234567", "2.125"])
def test_the_form_begins_with_the_limit_that_there_is(site: Site, most: str) -> None:
    do(site, "/rules/mails/limit", {"most": most}, Role.ADMIN)
    (_, form) = see(site, "/rules").all("form", method="get")
    field = form.all("input")[0]
    assert field.attributes["value"] == most
    assert see(site, f"/rules/mails/try?most={field.attributes['value']}").all("form", method="post")


def test_schedules_are_seen_paused_run_and_changed(site: Site) -> None:
    (row,) = see(site, "/rules").one(id="crons-2").rows()
    assert row[:4] == ["report", "report", "0 6 * * * UTC", "no engine"]
    do(site, "/rules/mails/cron", {"name": "report", "to": "paused"})
    assert see(site, "/rules").one(id="crons-2").rows()[0][3] == "paused"
    do(site, "/rules/mails/cron", {"name": "report", "to": "resumed"})
    job = do(site, "/rules/mails/cron", {"name": "report", "to": "now"})
    assert site.apps[0].job(int(job.rpartition("/")[2])).type == "report"
    do(site, "/rules/mails/cron/change", {"name": "report", "to": "changed", "expression": "0 7 * * *"}, Role.ADMIN)
    assert "0 7 * * *" in see(site, "/rules").one(id="crons-2").text
    in_berlin = {"name": "report", "to": "changed", "expression": "0 7 * * *", "tz": "Europe/Berlin"}
    do(site, "/rules/mails/cron/change", in_berlin, Role.ADMIN)
    do(site, "/rules/mails/cron/change", {**in_berlin, "expression": "0 8 * * *", "tz": ""}, Role.ADMIN)
    assert "0 8 * * * Europe/Berlin" in see(site, "/rules").one(id="crons-2").text
    do(site, "/rules/mails/cron/change", {"name": "report", "to": "reset"}, Role.ADMIN)
    assert "0 6 * * *" in see(site, "/rules").one(id="crons-2").text
    bad = {"name": "report", "to": "changed", "expression": "every day"}
    assert go(site, "/rules/mails/cron/change", form=bad).status == 400


def test_who_may_not_change_limits_sees_no_way_to(site: Site) -> None:
    assert not see(site, "/rules", Role.OPERATE).all("form", method="get")
    assert not see(site, "/rules", Role.VIEW).all("form")
    assert go(site, "/rules/orders/limit", Role.OPERATE, {"most": "9"}).status == 403
    assert go(site, "/rules/mails/pause", Role.VIEW, {"to": "paused"}).status == 403


def test_a_dashboard_that_is_read_only_shows_no_way_to_change_rules_and_answers(site: Site) -> None:
    read_only = Site(site.apps, read_only=True)
    site.apps[0].answer("mails", "send", "early", "hello")
    for path in ("/rules", "/rules/orders/try?most=2", "/answers/1"):
        assert see(site, path).all("form", method="post")
        assert not see(read_only, path).all("form", method="post")
    assert not see(read_only, "/answers").all("button", class_="grave")


def test_the_picture_has_windows_and_ticks_where_they_are() -> None:
    windows = (("mails.send", dump([window("22:00", "05:00")])),)
    crons = (("mails.report", "0 6 * * *", "UTC"), ("often", "* * * * *", "UTC"))
    day = day_of(windows, crons, MIDNIGHT)
    send, report, often = day.rows
    assert send.spans == [(0, 5 * HOUR // STEP), (22 * HOUR // STEP, 2 * HOUR // STEP)]
    assert send.says == "open 00:00 to 05:00, 22:00 to 00:00"
    assert (report.ticks, report.says) == ([6 * HOUR // STEP], "ticks at 06:00")
    assert often.spans == [(0, day.width)]
    assert [name for _, name in day.hours[:2]] == ["00:00", "03:00"]


def test_the_picture_is_on_the_page(site: Site) -> None:
    picture = see(site, "/rules").one("svg", class_="day")
    assert len(picture.all("rect", class_="open")) in (1, 2)
    assert len(picture.all("rect", class_="tick")) == 1
