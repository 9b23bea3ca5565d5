"""The page of one job: what it carries, its relatives, what can be done to it, and jobs that are not there."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hipq import Hipq, Job, NotFound, Queue, Wait, fixed, window
from hipq.dashboard import bodies
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Reply, Role, Visit, Visitor
from hipq.job.meta import Meta
from hipq.job.model import New
from hipq.testing.clock import HandClock
from tests.dashboard.seen import Element, do, go, parsed, see
from tests.engine.conftest import app, clock, make_app, queue, run, url

__all__ = ["app", "clock", "make_app", "queue", "run", "url"]

Run = Callable[[], None]
HOSTILE = "<script>alert('x')</script>\" onload=\"x' & ‮"


@pytest.fixture
def site(app: Hipq, queue: Queue) -> Site:
    assert queue.number
    return Site([app], mask=["Card"])


def buttons(page: Element) -> list[str]:
    """What can be done, as the page offers it."""
    head = page.one(id="job-head")
    return [one.text for one in [*head.all("button"), *head.all("a", class_="button")]]


def headers(reply: Reply) -> dict[str, str]:
    return {"content-type": reply.type, **dict(reply.headers)}


# -- what it carries -------------------------------------------------------------------------------------------------
def test_data_result_and_answer_are_printed_as_they_were_written_without_masked_fields(
    site: Site, queue: Queue, run: Run
) -> None:
    queue.job("charge")(lambda _: Wait())
    job_id = queue.enqueue("charge", {"z": 1.0, "a": [{"CARD": "4111"}], "card": {"number": 4111}}, key="k")
    run()
    site.apps[0].answer("orders", "charge", "k", {"paid": True, "card": "4111", "say": HOSTILE})
    page = see(site, f"/jobs/{job_id}")
    text = page.one("pre", id="data").inside[0]
    assert text == '{\n  "z": 1.0,\n  "a": [\n    {\n      "CARD": "•••"\n    }\n  ],\n  "card": "•••"\n}'
    assert page.one("pre", id="result").text == (
        '{ "paid": true, "card": "•••", "say": ' + '"' + HOSTILE.replace('"', '\\"') + '" }'
    )
    assert not page.all("script")
    assert all("onload" not in one.attributes for one in page.all())
    (kept,) = site.apps[0].answers.list()
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/data", f"/jobs/{job_id}/result", f"/answers/{kept.id}/data"):
        reply = go(site, path)
        assert (reply.status, "4111" in reply.body.decode()) == (200, False), path
    found = headers(go(site, f"/answers/{kept.id}/data"))
    assert (found["content-type"], found["x-content-type-options"]) == ("application/json", "nosniff")
    assert found["content-disposition"] == f'attachment; filename="answer-{kept.id}.json"'


def test_a_large_body_is_cut_and_can_be_had_whole(site: Site, queue: Queue) -> None:
    data = {"rows": ["x" * 100] * 1000, "card": "4111"}
    job_id = queue.enqueue("work", data)
    section = see(site, f"/jobs/{job_id}").one(id="job-data")
    assert len(section.one("pre").all() or section.one("pre").text) <= bodies.SHOWN
    assert "This is its beginning." in section.text
    assert section.one("a").attributes["href"] == f"/jobs/{job_id}/data"
    reply = go(site, f"/jobs/{job_id}/data")
    assert len(reply.body) > 100_000
    assert b"4111" not in reply.body


def test_a_body_too_large_to_be_read_is_not_shown_where_fields_are_masked() -> None:
    stored = '{"card":"4111","x":"' + "x" * bodies.READ * bodies.SHOWN + '"}'
    assert bodies.shown(stored, ()).text == stored[: bodies.SHOWN]
    hidden = bodies.shown(stored, {"card"})
    assert (hidden.text, "too many to be masked" in hidden.note) == ("", True)


@pytest.mark.parametrize(
    ("stored", "shown", "kind", "content"),
    [
        ('"{\\"a\\":1}"', '{\n  "a": 1\n}', "application/json", b'{"a":1}'),
        ('"<b>plain"', "<b>plain", "text/plain; charset=utf-8", b"<b>plain"),
        ('{"base64":"/wD+"}', "", "application/octet-stream", b"\xff\x00\xfe"),
        ('{"base64":"no!"}', '{\n  "base64": "no!"\n}', "application/json", b'{"base64":"no!"}'),
        ("not json", "not json", "text/plain; charset=utf-8", b"not json"),
    ],
)
def test_a_daemon_keeps_bytes_and_gives_them_back(stored: str, shown: str, kind: str, content: bytes) -> None:
    assert bodies.shown(stored, (), of_daemon=True).text == shown
    reply = bodies.download("x", stored, (), of_daemon=True)
    assert (reply.type, reply.body) == (kind, content)


def test_what_is_not_text_is_not_given_away_where_fields_are_masked(site: Site, app: Hipq, queue: Queue) -> None:
    new = New(
        queue.number, "work", "", '{"base64":"/wD+"}', "ready", "0", 1, 1, tenant="acme", lane="acme/work",
        meta=Meta(then="next").dump(),
    )  # fmt: skip
    job_id = app.store.enqueue([new])[0].id
    page = see(site, f"/jobs/{job_id}")
    assert "It is 3 bytes that are not text." in page.one(id="job-data").text
    assert page.one("ol").all(class_="what")[-1].text == "Added by tenant acme a job of type next is to follow it"
    assert go(site, f"/jobs/{job_id}/data").status == 403


# -- its relatives ---------------------------------------------------------------------------------------------------
def test_the_jobs_with_the_same_key_before_and_after(site: Site, queue: Queue, run: Run, clock: HandClock) -> None:
    queue.job("work")(lambda _: 1)
    ids = []
    for _ in range(9):
        ids.append(queue.enqueue("work", key="nightly"))
        run()
        clock.advance(hours=1)
    queue.enqueue("other", key="nightly")
    section = see(site, f"/jobs/{ids[6]}").one(id="job-relatives")
    assert [one.text for one in section.all("h3")] == ["With the same key"]
    before, after = ([row[0] for row in table.rows()] for table in section.all("table"))
    assert before == [str(one) for one in ids[1:6]]
    assert after == [str(one) for one in ids[7:]]
    assert [one.text for one in section.all("h4")] == ["Before it, the last ones", "After it"]
    alone = queue.enqueue("work")
    assert not see(site, f"/jobs/{alone}").all(id="job-relatives")


@pytest.mark.parametrize("process", [False, True])
def test_a_job_names_the_one_whose_handler_added_it_and_its_requeued_twin_does_not(
    site: Site, app: Hipq, queue: Queue, run: Run, process: bool
) -> None:
    queue.job("mail")(lambda _: 1)

    @queue.job(process=process)
    def order(job: Job[Any]) -> None:
        job.enqueue("mail", key="child")

    parent = order.enqueue()
    run()
    (child,) = app.jobs("orders", type="mail")
    head = see(site, f"/jobs/{child.id}").one(id="job-head")
    assert f"/jobs/{parent}" in [link.attributes["href"] for link in head.all("a")]
    page = see(site, f"/jobs/{child.id}")
    assert page.one("ol").all(class_="what")[-3].text == f"Added by job {parent}, with the key child"
    family = page.one(id="job-relatives")
    assert [row[:3] for row in family.one("table").rows()] == [[str(parent), "order", "ok"]]
    family = see(site, f"/jobs/{parent}").one(id="job-relatives")
    assert [row[:3] for row in family.one("table").rows()] == [[str(child.id), "mail", "ok"]]
    (listed,) = see(site, f"/jobs?parent={parent}").one(id="rows").all("tr")
    assert listed.all("a")[0].text == str(child.id)
    again = app.jobs.requeue(child.id)
    headings = [one.text for one in see(site, f"/jobs/{again}").one(id="job-relatives").all("h3")]
    assert headings == ["With the same key"], "a job that is added again is nobody's child"
    assert see(site, f"/jobs/{again}").one("ol").all(class_="what")[-1].text == "Added, with the key child"


def test_children_in_any_queue_are_shown_and_a_parent_that_is_deleted_is_said_to_be(
    site: Site, app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    mail = app.queue("mails").job("mail")(lambda _: 1)

    @queue.job
    def order(job: Job[Any]) -> None:
        for n in range(7):
            job.enqueue(mail, key=f"mail-{n}")
            job.enqueue("part", key=f"part-{n}")

    parent = order.enqueue()
    run()
    clock.advance(days=1)
    table = see(site, f"/jobs/{parent}").one(id="job-relatives").one("table")
    assert [row[1] for row in table.rows()] == ["part"] * 7 + ["mail"] * 3
    assert "All of them" in see(site, f"/jobs/{parent}").one(id="job-relatives").text
    child = app.jobs("mails")[0]
    assert len(see(site, f"/jobs?parent={parent}").one(id="rows").all("tr")) == 14
    site.apps[0].store.prune(queue.number, (clock.now(), 1), 100, job_type="order")
    assert (
        f"Job {parent} has been deleted since it ended." in see(site, f"/jobs/{child.id}").one(id="job-relatives").text
    )


# -- what can be done ------------------------------------------------------------------------------------------------
def test_a_scheduled_job_can_be_run_changed_and_cancelled(site: Site, app: Hipq, queue: Queue, run: Run) -> None:
    done: list[int] = []
    queue.job("work")(lambda job: done.append(job.id))
    job_id = queue.enqueue("work", delay=3600)
    assert buttons(see(site, f"/jobs/{job_id}")) == ["Run now", "Change", "Cancel"]
    assert do(site, f"/jobs/{job_id}/change", {"at": "2027-02-01T10:00", "delay": "", "priority": "7"}) == (
        f"/jobs/{job_id}?done=change"
    )
    changed = app.job(job_id)
    assert (changed.scheduled_run_time.isoformat(), changed.priority) == ("2027-02-01T10:00:00+00:00", 7)
    page = see(site, f"/jobs/{job_id}?done=change")
    assert page.one(role="status").text == "It is changed."
    assert "Given the priority 7 to start at 2027-02-01 10:00:00" in page.one("ol").text
    assert do(site, f"/jobs/{job_id}/run-now", {}) == f"/jobs/{job_id}?done=run-now"
    run()
    assert done == [job_id]
    assert buttons(see(site, f"/jobs/{job_id}")) == ["Add it again"]


def test_a_form_that_is_sent_twice_adds_a_job_once(site: Site, app: Hipq, queue: Queue, run: Run) -> None:
    queue.job("work")(lambda _: 1)
    job_id = queue.enqueue("work")
    run()
    path = f"/jobs/{job_id}"

    def form() -> dict[str, str]:
        asked = Visit("GET", path, "", {}, {}, {}, Visitor("ann", Role.OPERATE), csrf="token")
        fields = parsed(site.reply(asked)).one("form", action=f"{path}/requeue").all("input")
        return {one.attributes["name"]: one.attributes["value"] for one in fields}

    first = form()
    with ThreadPoolExecutor(4) as threads:
        places = set(threads.map(lambda _: do(site, f"{path}/requeue", first), range(4)))
    assert (len(places), app.jobs.count("orders")) == (1, 2)
    assert do(site, f"{path}/requeue", first) in places
    assert do(site, f"{path}/requeue", form()) not in places
    assert app.jobs.count("orders") == 3
    assert len(app.store.audit_log(0, 10)) == 2, "what was done once is recorded once"


def test_a_form_that_was_wrong_may_be_sent_again(site: Site, app: Hipq, queue: Queue) -> None:
    path = f"/jobs/{queue.enqueue('work', delay=60)}"
    assert go(site, f"{path}/change", Role.OPERATE, {"once": "x", "delay": "soon"}).status == 400
    assert do(site, f"{path}/change", {"once": "x", "delay": "2h"}) == f"{path}?done=change"
    ann, bob = ({"once": "y", "reason": name} for name in ("ann", "bob"))
    assert do(site, f"{path}/cancel", ann) == do(site, f"{path}/cancel", bob)
    assert go(site, f"{path}/cancel", Role.OPERATE, {"once": "z"}).status == 409
    assert '"ann"' in app.jobs("orders")[0].error


def test_what_the_form_of_a_change_says_wrong_is_said_there(site: Site, app: Hipq, queue: Queue) -> None:
    job_id = queue.enqueue("work", delay=60)
    for form, said in (
        ({}, "Say what to change"),
        ({"at": HOSTILE}, "The time is written like 2027-01-15T08:00."),
        ({"delay": HOSTILE}, "The delay must be a number of seconds"),
        ({"priority": HOSTILE}, "The priority is a whole number."),
        ({"at": "2027-02-01T10:00", "delay": "5m"}, "Give at= or delay=, not both."),
    ):
        reply = go(site, f"/jobs/{job_id}/change", Role.OPERATE, form)
        assert reply.status == 400
        assert parsed(reply).one(role="alert").text.startswith(said)
    assert app.job(job_id).priority == 100


def test_a_job_that_ended_is_added_again_and_nothing_else(site: Site, app: Hipq, queue: Queue, run: Run) -> None:
    queue.job("work", retry=None)(lambda _: 1 / 0)
    job_id = queue.enqueue("work", {"a": 1}, key="k")
    run()
    where = do(site, f"/jobs/{job_id}/requeue", {})
    new = int(re.fullmatch(r"/jobs/(\d+)\?done=requeue", where)[1])  # type: ignore[index]
    assert (new != job_id, app.job(new).data, app.job(new).key) == (True, {"a": 1}, "k")
    assert see(site, where).one(role="status").text == "This is the new job: it is like the one that had ended."
    for action in ("cancel", "run-now", "change"):
        form = {"priority": "1"} if action == "change" else {}
        assert go(site, f"/jobs/{job_id}/{action}", Role.OPERATE, form).status == 409, action
    assert go(site, f"/jobs/{new}/requeue", Role.OPERATE, {}).status == 409, "it has not ended"
    assert "nothing to cancel any more" in see(site, f"/jobs/{job_id}/cancel").text


def test_what_is_offered_is_what_can_be_done(site: Site, app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    charge = queue.job("charge", retry=fixed(60))(lambda _: Wait(timeout=5))

    @charge.answered
    def broken(_job: Job[Any], _answer: Any) -> None:
        raise OSError("the handler is broken")

    ready = queue.enqueue("charge", key="ready")
    assert buttons(see(site, f"/jobs/{ready}")) == ["Change", "Cancel"]
    shut = queue.enqueue("nobody", delay=60, windows=[window("10:00", "11:00", days=["sat"])])
    assert buttons(see(site, f"/jobs/{shut}")) == ["Change", "Cancel"], "its window is closed now"
    run()
    assert buttons(see(site, f"/jobs/{ready}")) == ["Cancel"]
    charge.answer("ready", 1)
    run()
    assert buttons(see(site, f"/jobs/{ready}")) == ["Look at its answer now", "Cancel"]
    assert do(site, f"/jobs/{ready}/run-now", {}) == f"/jobs/{ready}?done=run-now"
    assert app.job(ready).phase == "answered"
    other = queue.enqueue("charge", key="other")
    run()
    clock.advance(seconds=5)
    run()
    assert buttons(see(site, f"/jobs/{other}")) == ["Retry now", "Change", "Cancel"]


def test_who_may_only_look_is_offered_nothing_and_can_do_nothing(site: Site, queue: Queue) -> None:
    job_id = queue.enqueue("work", delay=60)
    assert buttons(see(site, f"/jobs/{job_id}", Role.VIEW)) == []
    for action in ("cancel", "run-now", "change", "requeue"):
        assert go(site, f"/jobs/{job_id}/{action}", Role.VIEW, {"reason": "x"}).status == 403
    assert go(site, f"/jobs/{job_id}/cancel", Role.VIEW).status == 403
    site.read_only = True
    assert buttons(see(site, f"/jobs/{job_id}")) == []


# -- jobs that are not there, or whose code is not -------------------------------------------------------------------
def test_a_job_that_is_gone_is_a_sentence(site: Site, app: Hipq, queue: Queue, run: Run, clock: HandClock) -> None:
    queue.job("work")(lambda _: 1)
    job_id = queue.enqueue("work")
    run()
    clock.advance(seconds=1)
    app.jobs.prune(0)
    with pytest.raises(NotFound):
        app.job(job_id)
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/data", f"/jobs/{job_id}/result", f"/jobs/{job_id}/cancel"):
        reply = go(site, path)
        assert (reply.status, "it has been deleted since it ended" in parsed(reply).one("main").text) == (404, True)
    for wrong in ("0", "-1", "x", "9" * 30, "٣", str((1 << 63) + 1), str(65536 * 7 + 999)):
        assert go(site, f"/jobs/{wrong}").status == 404, wrong
        assert go(site, f"/answers/{wrong}/data").status == 404, wrong


def test_jobs_and_answers_of_another_instance_are_not_there(url: str, site: Site) -> None:
    other = Hipq("bank", url)
    there = other.queue("payments")
    there.job("pay")(lambda _: Wait())
    other.migrate()
    job_id = there.enqueue("pay", {"secret": "x"}, key="k")
    there.job_type("pay").answer("k", {"secret": "x"})
    (kept,) = other.answers.list()
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/data", f"/answers/{kept.id}/data"):
        assert go(site, path).status == 404
    assert go(site, f"/jobs/{job_id}/cancel", Role.OPERATE, {}).status == 404
    assert other.job(job_id).state == "initial"
    other.close()


def test_without_the_code_of_a_job_its_page_is_the_same(
    site: Site, url: str, queue: Queue, run: Run, clock: HandClock
) -> None:
    queue.job("work", retry=fixed(60))(lambda _: 1 / 0)
    job_id = queue.enqueue("work", {"card": "4111"}, key=HOSTILE[:-2])
    run()
    elsewhere = Hipq("shop", url, clock=clock)
    assert elsewhere.known("orders").number
    page = see(Site([elsewhere], mask=["card"]), f"/jobs/{job_id}")
    assert page.one("ol").text == see(site, f"/jobs/{job_id}").one("ol").text
    assert page.one("h1").text == " ".join(f"work {HOSTILE[:-2]}".split())
    elsewhere.close()
