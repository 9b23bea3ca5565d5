"""The pages of the inbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hipq import Hipq, Queue, Wait
from hipq.answers.reports import Report, write_report
from hipq.dashboard.pages import answers
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role
from hipq.testing.clock import HandClock
from tests.dashboard.seen import do, go, parsed, see


@pytest.fixture
def site(either_url: str) -> Iterator[Site]:
    app = Hipq("shop", either_url, clock=HandClock())
    orders = app.queue("orders")
    orders.job("charge")(lambda _: Wait())
    orders.request("pay", to="https://ann:secret@bank.example/pay/{key}", answers="kafka://payments-in", key="ref")
    app.queue("mails").job("send")(lambda _: None)
    app.migrate()
    yield Site([app])
    app.close()


def orders(app: Hipq) -> Queue:
    return next(queue for queue in app.queues if queue.name == "orders")


@pytest.fixture
def app(site: Site) -> Hipq:
    """With an answer that ended a job, one that came again later with another body, and two that are early."""
    (app,) = site.apps
    orders(app).enqueue("charge", {"amount": 5}, key="order-1")
    app.run(until_empty=True)
    assert app.answer("orders", "charge", "order-1", {"status": "paid"}) == "matched"
    assert app.answer("orders", "charge", "order-1", {"status": "refused"}) == "conflict"
    assert app.answer("orders", "charge", "order-2", {"status": "paid"}, answer_id="evt-7") == "buffered"
    assert app.answer("mails", "send", "<b>bold</b>", "hello") == "buffered"
    return app


def _listed(site: Site, url: str) -> list[tuple[str, str]]:
    """The key and the state of each answer in the list."""
    table = see(site, url).all("tbody", id="found")
    rows = [[cell.text for cell in row.all("td")] for row in table[0].all("tr")] if table else []
    return [(row[4], row[5]) for row in rows]


@pytest.mark.usefixtures("app")
def test_it_lists_the_answers_that_no_job_has_used_the_newest_first(site: Site) -> None:
    assert _listed(site, "/answers") == [("<b>bold</b>", "buffered"), ("order-2", "buffered"), ("order-1", "conflict")]
    assert _listed(site, "/answers?state=conflict") == [("order-1", "conflict")]
    assert _listed(site, "/answers?queue=mails") == [("<b>bold</b>", "buffered")]
    assert _listed(site, "/answers?key=order-2&type=charge&state=buffered") == [("order-2", "buffered")]
    assert _listed(site, "/answers?state=late") == []
    (job,) = orders(site.apps[0]).app.jobs("orders")
    used = _listed(site, f"/answers?job={job.id}")
    assert [key for key, _ in used] == ["order-1", "order-1"], "those that it has used, too"
    figures = see(site, "/answers").one(id="counts").all("a")
    assert [one.text for one in figures[:3]] == ["2 buffered", "0 late", "1 conflict"]


def test_a_long_list_has_more_pages(site: Site, app: Hipq) -> None:
    for number in range(60):
        app.answer("orders", "charge", f"early-{number}", number)
    first = see(site, "/answers?state=buffered")
    rest = first.one("a", rel="next").attributes["href"]
    assert [key for key, _ in _listed(site, "/answers?state=buffered")] == [f"early-{n}" for n in range(59, 9, -1)]
    assert [key for key, _ in _listed(site, rest)][-2:] == ["<b>bold</b>", "order-2"]
    assert not see(site, rest).all("a", rel="next")


@pytest.mark.usefixtures("app")
def test_requests_that_are_outstanding_say_where_they_went(site: Site) -> None:
    orders(site.apps[0]).enqueue("charge", key="order-3")
    site.apps[0].run(until_empty=True)
    (row,) = see(site, "/answers").one(id="outstanding").rows()
    assert row[:2] == ["orders", "1"]
    assert "in 1d00h" in row[2]
    assert row[3] == "pay → POST https://bank.example"


def test_counting_requests_that_are_outstanding_stops(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many queues there would be no end of it."""
    monkeypatch.setattr(answers, "COUNTED", 2)
    for number in range(3):
        orders(site.apps[0]).enqueue("charge", key=f"order-{number}")
    site.apps[0].run(until_empty=True)
    (row,) = see(site, "/answers").one(id="outstanding").rows()
    assert row[:2] == ["orders", "2+"]


def test_listeners_say_how_far_they_are_behind(site: Site, app: Hipq) -> None:
    report = Report("kafka://payments-in", "host-1", {"matched": 3, "late": 1}, 1204, "", gone=False)
    write_report(app.store, "shop", "kafka://payments-in orders.pay", report)
    (row,) = see(site, "/answers").one(id="listeners").rows()
    assert row[:4] == ["kafka://payments-in", "1", "1,204", "3"]


def test_an_answer_is_delivered_again_to_the_job_it_was_meant_for(site: Site, app: Hipq) -> None:
    job = orders(app).enqueue("charge", key="order-9")
    app.run(until_empty=True)
    (early,) = app.answers.list("orders", key="order-2")
    page = see(site, f"/answers/{early.id}")
    assert "evt-7" in page.text
    assert '"status": "paid"' in page.one(id="body").text
    where = do(site, f"/answers/{early.id}/replay", {"key": "order-9", "type": ""})
    assert "matched" in see(site, where).one("p", role="status").text
    assert app.job(job).result == {"status": "paid"}
    assert go(site, f"/answers/{early.id}").status == 404


def test_answers_are_deleted_one_or_those_selected(site: Site, app: Hipq) -> None:
    numbers = [str(one.id) for one in app.answers.list(state="buffered")]
    (contradicting,) = app.answers.list(state="conflict")
    assert "was deleted" in see(site, do(site, f"/answers/{contradicting.id}/drop", {})).one("p", role="status").text
    do(site, "/answers/drop", {"answer": numbers, "state": "", "queue": ""})
    assert _listed(site, "/answers") == []
    assert "Every answer has found its job." in see(site, "/answers").text


def test_who_may_only_look_sees_no_buttons_and_can_change_nothing(site: Site, app: Hipq) -> None:
    (early,) = app.answers.list("orders", key="order-2")
    assert not see(site, "/answers", Role.VIEW).all("form", method="post")[0].all("button")
    assert not see(site, f"/answers/{early.id}", Role.VIEW).all("form", method="post")
    assert go(site, f"/answers/{early.id}/drop", Role.VIEW, {}).status == 403
    assert app.answers.show(early.id).state == "buffered"


def test_what_an_answer_says_is_text(site: Site, app: Hipq) -> None:
    hostile = '<script>alert(1)</script><img src=x onerror="alert(1)">'
    app.answer("orders", "charge", hostile[:60], {"a": hostile})
    (kept,) = app.answers.list("orders", key=hostile[:60])
    for url in ("/answers", f"/answers/{kept.id}"):
        page = see(site, url)
        assert not page.all("script")
        assert not page.all("img")
    assert hostile.replace('"', '\\"') in see(site, f"/answers/{kept.id}").one(id="body").text


@pytest.mark.parametrize(
    "url", ["/answers?state=settled", "/answers?before=-1", f"/answers?before={'9' * 5000}", "/answers?type=%00"]
)
def test_what_cannot_be_looked_for_is_said_in_a_sentence(site: Site, url: str) -> None:
    reply = go(site, url)
    assert reply.status == 400
    assert len(parsed(reply).one("main").one("p").text) > 10


@pytest.mark.parametrize("number", ["0", "99", "x", "9" * 5000])
def test_what_is_not_there_is_not_found(site: Site, number: str) -> None:
    assert go(site, f"/answers/{number}").status == 404
    assert go(site, "/answers?queue=no").status == 404


def test_a_long_answer_is_cut(site: Site, app: Hipq) -> None:
    app.answer("orders", "charge", "long", "x" * 1_000_000)
    number = app.answers.list()[-1].id
    page = see(site, f"/answers/{number}", Role.VIEW)
    assert len(page.text) < 100_000
    assert page.one("a", href=f"/answers/{number}/data").text == "Download it whole"


def test_answers_of_a_key_are_found_in_all_queues_and_of_a_type_among_the_newest(
    site: Site, app: Hipq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "LOOKED", 3)
    monkeypatch.setattr(answers, "QUEUES", 1)
    app.answer("orders", "charge", "<b>bold</b>", "again")
    for n in range(4):
        app.answer("mails", "digest", f"digest-{n}", n)
    assert _listed(site, "/answers?key=%3Cb%3Ebold%3C/b%3E") == [("<b>bold</b>", "buffered")] * 2
    assert _listed(site, "/answers?key=order-1&state=conflict") == [("order-1", "conflict")]
    assert _listed(site, "/answers?key=order-1&state=late") == []
    assert [key for key, _ in _listed(site, "/answers?queue=mails&type=digest")] == ["digest-3", "digest-2", "digest-1"]
    assert _listed(site, "/answers?queue=mails&type=send") == [], "it is not among the newest"
    assert "the newest 3 were looked at" in see(site, "/answers?queue=mails&type=send").text
