"""The list of jobs: each filter, the search box, pages, and what cannot be asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from markupsafe import escape
from msgspec.structs import replace

from hipq import Hipq
from hipq.dashboard import job_filter, looking
from hipq.dashboard.pages import jobs as jobs_page
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role
from hipq.job.model import Change
from hipq.job.when import to_datetime
from hipq.testing.clock import HandClock
from tests.dashboard.seen import Element, go, parsed, see
from tests.dashboard.shop_jobs import filled, queue, shop


@pytest.fixture
def site(store_kind: str, tmp_path: Path) -> Iterator[Site]:
    with shop(store_kind, tmp_path) as site:
        yield site


@pytest.fixture(scope="module")
def full(store_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With a job of each kind; tests only look."""
    with shop(store_kind, tmp_path_factory.mktemp("shop")) as site:
        filled(site)
        yield site


def keys(page: Element) -> list[str]:
    """The keys in the list."""
    heads = [cell.text for cell in page.all("th")]
    return [row.all("td")[heads.index("Key")].text for row in page.one("tbody", id="rows").all("tr")]


def where(site: Site, url: str) -> str:
    reply = go(site, url)
    assert reply.status == 303
    return dict(reply.headers)["location"]


ALL = "mail-1 gone-1 later-2 later-1 wait-1 again-1 raise-1 fail-1 ok-2 ok-1"
FILTERS = {
    "": ALL,
    "order=oldest": " ".join(ALL.split()[::-1]),
    "queue=mails": "mail-1",
    "queue=orders&type=refund": "raise-1",
    "type=refund": "raise-1",
    "type=send": "mail-1",
    "state=live": "mail-1 later-2 later-1 wait-1 again-1",
    "state=ended": "gone-1 raise-1 fail-1 ok-2 ok-1",
    "state=scheduled": "later-2 later-1",
    "state=ready": "mail-1",
    "state=held+back": "",
    "state=running": "",
    "state=waiting": "wait-1",
    "state=answered": "",
    "state=cancelling": "",
    "state=deciding": "",
    "state=retrying": "again-1",
    "state=ok": "ok-2 ok-1",
    "state=failed": "fail-1",
    "state=error": "raise-1",
    "state=cancelled": "gone-1",
    "code=error": "again-1 raise-1",
    "code=ok&state=ended": "ok-2 ok-1",
    "lane=east": "later-2 ok-2",
    "lane=east&state=ok": "ok-2",
    "tenant=acme": "",
    "key=ok-1": "ok-1",
    "key=ok": "",
    "prefix=ok": "ok-2 ok-1",
    "prefix=later&lane=east": "later-2",
    "prefix=OK": "",
    "prefix=%25": "",
    "since=3.5m": "mail-1 gone-1 later-2 later-1",
    "before=3.5m": "wait-1 again-1 raise-1 fail-1 ok-2 ok-1",
    "since=5.5m&before=3.5m&order=oldest": "again-1 wait-1",
    "since=2999-01-01": "",
    "before=1971-01-01T00:00": "",
    "error=bank.example": "again-1 raise-1",
    "error=bank.example&state=error": "raise-1",
    "error=Bank": "",
    "error=" + quote('File "'): "again-1 raise-1",
    "payload=customer%3D17": "ok-1",
    "payload=a.b%3Dx": "ok-1",
    "payload=items.0.sku%3Ds-1": "ok-1",
    "payload=paid%3Dtrue": "ok-2",
    "payload=sum%3D1.5": "ok-2",
    "payload=" + quote('note=say "17" <b>'): "fail-1",
    "payload=customer%3D17&state=failed": "",
    "payload=nothing%3Dx": "",
}


@pytest.mark.parametrize("query", FILTERS)
def test_each_filter_finds_its_jobs(full: Site, query: str) -> None:
    page = see(full, f"/jobs?{query}")
    assert keys(page) == FILTERS[query].split()
    number = len(FILTERS[query].split())
    assert page.one("p", id="count").text == ("1 job" if number == 1 else f"{number} jobs")


@pytest.mark.parametrize("query", FILTERS)
def test_looking_in_small_steps_finds_the_same(full: Site, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in {"WINDOW": 1, "FEW": 0, "FEW_IDS": 0}.items():
        monkeypatch.setattr(looking, limit, value)
    monkeypatch.setattr(looking.page, "__defaults__", (60.0,))
    assert keys(see(full, f"/jobs?{query}")) == FILTERS[query].split()


def test_time_that_went_by_before_looking_is_looking_time(full: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """To find the ids of jobs that were added at a time takes some, in each queue."""
    for limit, value in {"WINDOW": 1, "FEW": 0, "FEW_IDS": 0}.items():
        monkeypatch.setattr(looking, limit, value)
    searches = job_filter.searches(full, {"type": "refund", "queue": "orders"})
    now = time.monotonic()
    assert looking.page(full.store, searches, {}, 50, 60.0, began=now).looked == 0
    assert looking.page(full.store, searches, {}, 50, 60.0, began=now - 120).looked == 1


@pytest.mark.parametrize("query", ["type=refund", "error=bank.example", "payload=customer%3D17", "state=waiting"])
def test_without_time_it_says_how_far_it_has_looked_and_goes_on_from_there(
    full: Site, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, value in {"WINDOW": 1, "FEW": 0, "FEW_IDS": 0}.items():
        monkeypatch.setattr(looking, limit, value)
    monkeypatch.setattr(looking.page, "__defaults__", (0.0,))
    found, url, pages = list[str](), f"/jobs?{query}&queue=orders", 0
    while url:
        page = see(full, url)
        found, pages = found + keys(page), pages + 1
        further = [link for link in page.all("a") if link.text == "Look further"]
        assert bool(further) == ("looked at" in page.one(id="rest").text)
        url = further[0].attributes["href"] if further else ""
    assert pages > 2
    assert found == FILTERS[query].split()


def test_the_filter_is_shown_and_each_part_of_it_can_be_taken_away(full: Site) -> None:
    page = see(full, "/jobs?state=failed&prefix=fail&order=oldest")
    assert [chip.text for chip in page.all(class_="chip")] == ["state failed ×", "key begins with fail ×"]
    assert [chip.one("a").attributes["href"] for chip in page.all(class_="chip")] == [
        "/jobs?prefix=fail&order=oldest",
        "/jobs?state=failed&order=oldest",
    ]
    assert page.one("input", name_="prefix", autocomplete="off").attributes["value"] == "fail"
    assert [one.text for one in page.one("select", name_="state").all("option", selected="")] == ["failed"]


def test_fields_that_were_left_empty_are_not_in_the_url(full: Site) -> None:
    assert where(full, "/jobs?queue=&state=ok&type=&since=") == "/jobs?state=ok"


def test_a_row_says_what_there_is_to_say(full: Site) -> None:
    page = see(full, "/jobs?queue=orders&type=refund")
    assert [cell.text for cell in page.all("th")] == [
        "", "Id", "Type", "Key", "State", "Attempt", "Error", "Took", "Added",
    ]  # fmt: skip
    (row,) = page.one("tbody", id="rows").all("tr")
    assert [cell.text for cell in row.all("td")][2:7] == [
        "refund", "raise-1", "error", "1", "ConnectionError: bank.example refused raise-1",
    ]  # fmt: skip
    assert {"Queue", "Lane"} <= {cell.text for cell in see(full, "/jobs").all("th")}


def test_pages_follow_each_other_through_all_queues(site: Site) -> None:
    added = []
    for number in range(120):
        name = "orders" if number % 3 else "mails"
        queue(site, name).enqueue("charge" if number % 3 else "send", key=f"k-{number}", delay=60)
        site.apps[0].database.clock.advance(seconds=1)  # type: ignore[union-attr]
        added.append(f"k-{number}")
    for query, wanted in {"order=oldest": added, "": added[::-1], "prefix=k-": added[::-1]}.items():
        seen, url = list[str](), f"/jobs?{query}"
        while url:
            page = see(site, url)
            assert page.one("p", id="count").text == "120 jobs"
            seen += keys(page)
            following = page.all("a", rel="next")
            url = following[0].attributes["href"] if following else ""
        assert seen == wanted
    first = [link for link in page.all("a") if link.text == "First page"]
    assert first[0].attributes["href"] == "/jobs?prefix=k-"


def test_the_search_box_goes_to_the_job_it_finds(site: Site) -> None:
    ids = filled(site)
    assert where(site, f"/jobs?find={ids['ok-1']}") == f"/jobs/{ids['ok-1']}"
    assert where(site, "/jobs?find=mail-1") == f"/jobs/{ids['mail-1']}"
    assert where(site, "/jobs?find=+gone+") == f"/jobs/{ids['gone-1']}"
    assert where(site, "/jobs?find=later") == "/jobs?prefix=later"
    queue(site).enqueue("refund", key="later-1", delay=60)
    assert where(site, "/jobs?find=later-1") == "/jobs?key=later-1"
    assert where(site, "/jobs?find=nobody") == "/jobs?key=nobody"
    assert where(site, f"/jobs?find={'9' * 19}") == f"/jobs?key={'9' * 19}"


HOSTILE = {
    "queue=nothing": 404,
    "state=gone": 400,
    "state=%00": 400,
    "code=NONE": 400,
    "state=ok&code=failed": 400,
    "type=a%00b": 400,
    "type=%3Cb%3E": 400,
    "key=a%00b": 400,
    "key=" + "k" * 501: 400,
    "prefix=%00": 400,
    "prefix=%ED%A0%80": 200,
    "lane=a%0A": 400,
    "tenant=%00": 400,
    "tenant=" + "t" * 501: 400,
    "error=%00": 400,
    "error=" + "e" * 10_000: 400,
    "payload=%00%3D%00": 400,
    "payload=customer": 400,
    "payload=%3D17": 400,
    "payload=customer%3D": 400,
    "payload=a..b%3D1": 400,
    "payload=card%3D4111": 400,
    "payload=a.CARD%3D4111": 400,
    "payload=a%3D" + "9" * 400: 200,
    "id=0": 400,
    "id=-1": 400,
    "id=1.5": 400,
    "id=" + "9" * 5_000: 400,
    "id=%D9%A3": 400,
    "id=9223372036854775807": 404,
    "after=-1": 400,
    "after=1,": 400,
    "after=" + "9" * 5_000: 400,
    "after=" + ",".join(["9223372036854775807"] * 50): 200,
    "since=0000-01-01": 400,
    "since=10000-01-01": 400,
    "since=0001-01-01T00:00%2B14:00": 400,
    "since=-5m": 400,
    "since=1.2.3h": 400,
    "since=99999999999999999999d": 400,
    "since=%00": 400,
    "before=yesterday": 400,
    "before=9999-12-31T23:59:59": 200,
    "before=99w": 200,
    "order=sideways": 200,
    "nothing=%00": 200,
    "find=%00": 400,
    "find=" + "9" * 5_000: 400,
    "find=%27%20OR%201%3D1": 303,
}


@pytest.mark.parametrize("query", HOSTILE)
def test_what_cannot_be_asked_for_is_refused_in_a_sentence(full: Site, query: str) -> None:
    reply = go(full, f"/jobs?{query}")
    assert reply.status == HOSTILE[query]
    if reply.status >= 400:
        assert 10 < len(parsed(reply).one("main").one("p").text) < 400


def test_whatever_names_say_is_text(site: Site) -> None:
    bad = '<script>alert("1")</script>\'"&'
    queue(site).enqueue("charge", key=bad, lane=bad, delay=60)
    reply = go(site, f"/jobs?prefix={quote(bad)}")
    assert "<script>alert" not in reply.body.decode()
    page = parsed(reply).one("main")
    assert keys(page) == [bad]
    assert bad in page.one(class_="chip").text
    assert escape(bad) in reply.body.decode()


def test_a_payload_that_is_too_large_to_be_searched_is_not_found_and_that_is_said(site: Site) -> None:
    for key, size in (("small", 8_000), ("large", 9_000)):
        queue(site).enqueue("charge", {"customer": 17, "fill": "x" * size}, key=key, delay=60)
    page = see(site, "/jobs?payload=customer%3D17")
    assert keys(page) == ["small"]
    assert "more than 8,192 characters are not searched" in page.one(id="rest").text


def test_a_job_whose_time_was_over_before_its_next_try_is_shown(site: Site) -> None:
    row = site.store.get(filled(site)["again-1"])
    assert row
    over = replace(row, state="final", phase="done", code="retry", token=row.token + 1)
    assert not site.store.turn(0, [Change(row, over)], [], site.store.now()).lost
    (line,) = see(site, "/jobs?state=ended&code=retry").one("tbody", id="rows").all("tr")
    assert line.one(class_="state").text == "error"


def test_who_may_only_look_selects_nothing(full: Site) -> None:
    page = see(full, "/jobs", Role.VIEW)
    assert not page.all("input", type="checkbox")
    assert not page.all("button", name_="do")
    assert len(see(full, "/jobs", Role.OPERATE).all("input", name_="job")) == len(ALL.split())


def test_jobs_of_a_time_are_found_however_unevenly_they_came(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in {"_SLACK": 2, "_NEAR": 1, "WINDOW": 20}.items():
        monkeypatch.setattr(looking, limit, value)
    monkeypatch.setattr(looking.page, "__defaults__", (60.0,))
    clock, app = site.apps[0].database.clock, site.apps[0]
    assert isinstance(clock, HandClock)
    times = []
    for number in range(90):
        clock.advance(seconds=1 if number < 40 else 3_600 if number < 50 else 0)
        times.append(clock.now())
        queue(site).enqueue("charge", key=f"k-{number}")
        if number == 20:
            app.run(until_empty=True)
    for at in (times[0], times[1], times[39], times[40], times[45] + 1, times[-1]):
        moment = quote(to_datetime(at).isoformat())
        before, since = [f"k-{n}" for n in range(90) if times[n] < at], [f"k-{n}" for n in range(90) if times[n] >= at]
        assert keys(see(site, f"/jobs?before={moment}&order=oldest")) == before[:50]
        assert keys(see(site, f"/jobs?since={moment}&order=oldest")) == since[:50]
        assert keys(see(site, f"/jobs?before={moment}")) == before[::-1][:50]
        assert keys(see(site, f"/jobs?since={moment}")) == since[::-1][:50]


def test_very_many_queues_are_looked_at_some_at_a_time_and_a_key_is_found_in_each(
    either_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_page, "QUEUES", 2)
    app = Hipq("shop", either_url, clock=HandClock())
    app.migrate()
    ids = {}
    for name in ("one", "two", "three", "four", "five"):
        added = app.queue(name)
        for key in ("same", name):
            ids[name, key] = int(added.enqueue("work", key=key))
    site = Site([app])

    def seen(url: str) -> list[str]:
        return [row.all("a")[0].text for row in see(site, url).one("tbody", id="rows").all("tr")]

    def of(*some: tuple[str, str]) -> set[str]:
        return {str(ids[one]) for one in some}

    page = see(site, "/jobs")
    assert "Of the queues 1 to 2 of 5" in page.text
    (following,) = page.all("a", rel="next")
    assert set(seen("/jobs")) == of(("one", "same"), ("one", "one"), ("two", "same"), ("two", "two"))
    assert following.attributes["href"] == "/jobs?part=2"
    assert set(seen("/jobs?part=3")) == set(seen("/jobs?part=99")) == of(("five", "same"), ("five", "five"))
    assert set(seen("/jobs?queue=four&part=3")) == of(("four", "same"), ("four", "four"))
    assert "Of the queues" not in see(site, "/jobs?queue=four").text
    assert set(seen("/jobs?key=four")) == of(("four", "four"))
    assert set(seen("/jobs?prefix=f")) == of(("four", "four"), ("five", "five"))
    assert set(seen("/jobs?key=same&part=2")) == of(("three", "same"), ("four", "same"))
    assert dict(go(site, "/jobs?find=five").headers)["location"] == f"/jobs/{ids['five', 'five']}"
    assert see(site, "/bulk?do=cancel&all=1&key=same").one("h1").text == "Cancel 5 jobs?", "bulk is about all queues"
    app.close()
