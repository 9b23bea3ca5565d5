"""The page of one job: its time line in order and in words, and why the job does not run."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hipq import Answer, Hipq, Job, Ok, Progress, Queue, Wait, backoff, fixed, limit
from hipq.dashboard.conversation import Scene, conversation
from hipq.dashboard.site import Site
from hipq.job import transitions
from hipq.job.model import Change, Row, remember
from hipq.job.progress import Report
from hipq.testing.clock import HandClock
from tests.dashboard.seen import Element, do, go, see
from tests.engine.conftest import app, clock, make_app, queue, run, url

__all__ = ["app", "clock", "make_app", "queue", "run", "url"]

Run = Callable[[], None]
HOSTILE = "<script>alert('x')</script>\" onload=\"x' & ‮"


@pytest.fixture
def site(app: Hipq, queue: Queue) -> Site:
    assert queue.number
    return Site([app], mask=["Card"])


class Said:
    """An entry of a time line as people read it."""

    def __init__(self, entry: Element) -> None:
        self.text = entry.one(class_="what").all("p")[0].text
        self.about = [one.text for one in entry.one(class_="what").all("p", class_="soft")]
        self.outside = "outside" in entry.one(class_="what").attributes["class"].split()
        self.ahead = "ahead" in entry.attributes["class"].split()
        self.element = entry

    @property
    def words(self) -> str:
        """Its sentence, without the moments that are told in other elements."""
        moments = [one.text for one in self.element.all("span") if one.attributes.get("class") in ("after", "until")]
        text = self.text
        for moment in moments:
            text = text.replace(moment, "")
        return text.strip()


def line(page: Element) -> list[Said]:
    return [Said(one) for one in page.one("ol").all("li") if one.attributes["class"] != "day"]


def told(site: Site, job_id: int) -> list[str]:
    return [one.words for one in line(see(site, f"/jobs/{job_id}"))]


def charge_of(queue: Queue, clock: HandClock, **options: Any) -> Any:
    def charge(_job: Job[Any]) -> Wait:
        clock.advance(seconds=0.2)
        return Wait(timeout=600)

    found = queue.job("charge", **options)(charge)

    @found.answered
    def settled(_job: Job[Any], answer: Answer) -> Any:
        return Progress() if answer.data == "more" else Ok(answer.data)

    return found


# -- the time line ---------------------------------------------------------------------------------------------------
def test_a_duplicate_and_a_conflict_fall_where_they_came(site: Site, queue: Queue, run: Run, clock: HandClock) -> None:
    charge = charge_of(queue, clock)
    job_id = charge.enqueue({"amount": 5}, key="order-17")
    run()
    clock.advance(minutes=2)
    charge.answer("order-17", {"paid": 5}, answer_id="first")
    run()
    clock.advance(minutes=3)
    charge.answer("order-17", {"paid": 5}, answer_id="first")
    charge.answer("order-17", {"paid": 6}, answer_id="other")
    found = line(see(site, f"/jobs/{job_id}"))
    first, second = (one for one in found if one.outside)
    assert [one.words for one in found] == [
        "Added, with the key order-17",
        f"Claimed by engine {_engine(site, job_id)}, attempt 1",
        "Waits for its answer",
        first.words,
        "Ended: ok",
        second.words,
    ]
    assert (first.words.split(" ", 2)[2], second.words.split(" ", 2)[2]) == ("came", "conflicts")
    assert first.about == ["the job ended with it; it came 2 times in all; its sender calls it first"]
    assert second.about == ["the job had ended with another one; its sender calls it other"]
    assert "+2m00s" in first.text
    assert "+3m00s" in second.text
    assert first.element.one("pre").text == '{ "paid": 5 }'


def _engine(site: Site, job_id: int) -> int:
    row = site.store.get(job_id)
    assert row is not None
    found: list[dict[str, Any]] = msgspec.json.decode(row.history)
    return int(next(entry["by"] for entry in found if entry["event"] == "claimed"))


def test_an_early_answer_is_seen_to_come_and_to_be_given(
    site: Site, app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    @queue.job
    def charge(_job: Job[Any]) -> Wait:
        clock.advance(seconds=1)
        app.answer("orders", "charge", "k", "paid")
        clock.advance(seconds=1)
        return Wait()

    job_id = charge.enqueue(key="k")
    run()
    found = told(site, job_id)
    (kept,) = app.answers.list(job=job_id)
    assert found[2:] == [
        f"Answer {kept.id} came early",
        "Waits for its answer",
        f"Given answer {kept.id}, which was kept for it",
        "Ended: ok",
    ]


def test_an_answer_that_is_kept_for_a_job_that_has_not_waited_yet_is_shown(
    site: Site, queue: Queue, clock: HandClock
) -> None:
    charge = charge_of(queue, clock)
    charge.answer("k", {"paid": 5})
    charge.answer("another", {"paid": 6})
    clock.advance(seconds=5)
    page = see(site, f"/jobs/{charge.enqueue(key='k')}")
    (one,) = (one for one in line(page) if one.outside)
    assert one.about == ["it is kept until the job wants it"]
    assert line(page)[0].outside, "it came before the job was added"


def test_answers_that_are_not_the_last_are_each_where_they_came(
    site: Site, queue: Queue, run: Run, clock: HandClock
) -> None:
    charge = charge_of(queue, clock)
    job_id = charge.enqueue(key="k")
    run()
    for data in ("more", "more", "paid"):
        clock.advance(seconds=10)
        charge.answer("k", data, answer_id=f"{clock.now()}")
        run()
    found = line(see(site, f"/jobs/{job_id}"))
    assert [one.words.split(" ")[0] if one.outside else one.words for one in found][3:] == [
        "Answer",
        "Looked at its answer, and waits for the next",
        "Answer",
        "Looked at its answer, and waits for the next",
        "Answer",
        "Ended: ok",
    ]


def test_a_timeout_a_retry_and_the_answer_of_the_first_attempt(
    site: Site, queue: Queue, run: Run, clock: HandClock
) -> None:
    charge = charge_of(queue, clock, retry=fixed(60))
    job_id = charge.enqueue(key="k")
    run()
    waiting = line(see(site, f"/jobs/{job_id}"))[-1]
    assert (waiting.words, waiting.ahead) == ("Without its answer, it times out", True)
    assert waiting.text.endswith("in 10m00s")
    clock.advance(minutes=10)
    run()
    retrying = see(site, f"/jobs/{job_id}")
    assert [one.words for one in line(retrying)][-3:] == ["Attempt 1 timed out", "To be tried again", "Is tried again"]
    assert "It is tried again at" in retrying.one(id="job-head").text
    clock.advance(minutes=1)
    run()
    charge.answer("k", "paid", attempt=1)
    run()
    found = line(see(site, f"/jobs/{job_id}"))
    assert [one.words for one in found if not one.outside] == [
        "Added, with the key k",
        f"Claimed by engine {_engine(site, job_id)}, attempt 1",
        "Waits for its answer",
        "Attempt 1 timed out",
        "To be tried again",
        found[5].words,
        "Waits for its answer",
        "Ended: ok",
    ]
    assert found[5].words.endswith("attempt 2")
    assert found[3].about == ["TimeoutError: no answer came before its time-out"]
    assert found[4].about == [], "the error is said once"
    (answer,) = (one for one in found if one.outside)
    assert answer.about == ["the job ended with it; it is for attempt 1"]


def test_a_late_answer_comes_behind_the_end_and_a_cancel_handler_before_it(
    site: Site, app: Hipq, queue: Queue, run: Run, clock: HandClock
) -> None:
    charge = charge_of(queue, clock)
    charge.cancelled(lambda job: None)  # noqa: ARG005
    job_id = charge.enqueue(key="k")
    run()
    clock.advance(minutes=1)
    assert do(site, f"/jobs/{job_id}/cancel", {"reason": HOSTILE[:-2]}) == f"/jobs/{job_id}?done=cancel"
    assert told(site, job_id)[-1] == "To be called off: its cancel handler is called"
    run()
    clock.advance(minutes=1)
    charge.answer("k", "paid")
    found = line(see(site, f"/jobs/{job_id}?done=cancel"))
    assert [one.words for one in found][3:-1] == [
        "To be called off: its cancel handler is called",
        "Its cancel handler has called the work off",
        "Cancelled",
    ]
    assert found[5].about == [" ".join(HOSTILE[:-2].split())]
    assert found[-1].words == f"Answer {app.answers.list(job=job_id)[0].id} came late"


def test_a_failure_has_its_traceback_where_it_happened(site: Site, queue: Queue, run: Run) -> None:
    @queue.job(retry=None)
    def work(job: Job[Any]) -> None:
        raise ValueError(f"card={job.data['card']} {HOSTILE}")

    job_id = work.enqueue({"card": "4111"})
    run()
    page = see(site, f"/jobs/{job_id}")
    found = line(page)
    assert [one.words for one in found][2:] == ["Attempt 1 failed", "Not tried again: ended with its error"]
    trace = found[2].element.one("details").one("pre").text
    assert "Traceback (most recent call last)" in trace
    assert not found[3].element.all("details")
    assert "4111" not in go(site, f"/jobs/{job_id}").body.decode()
    assert "ValueError: card=•••" in page.one(id="job-head").text


def test_a_crash_and_what_follows_from_it(site: Site, queue: Queue, run: Run, clock: HandClock) -> None:
    queue.job("dies", process=True, retry=backoff(attempts=2, jitter=0))(lambda _: os._exit(3))
    job_id = queue.enqueue("dies")
    run()
    clock.advance(minutes=1)
    run()
    found = line(see(site, f"/jobs/{job_id}"))
    assert [one.words.rpartition(" by ")[0] or one.words for one in found][1:] == [
        "Claimed",
        "Its process crashed",
        "To be tried again",
        "Claimed",
        "Its process crashed",
        "Not tried again: ended with its error",
    ]
    assert found[2].about == ["ChildProcessError: the process that ran it exited with status 3"]


def test_what_a_running_handler_says_of_its_progress(site: Site, queue: Queue, run: Run, clock: HandClock) -> None:
    seen: list[Element] = []

    @queue.job
    def work(job: Job[Any]) -> None:
        row = site.store.get(job.id)
        assert row is not None
        clock.advance(seconds=3)
        site.store.report([Report(row.id, row.token, row.attempt, 0.4, f"page 4 {HOSTILE}")], clock.now())
        clock.advance(seconds=1)
        seen.append(see(site, f"/jobs/{job.id}"))

    work.enqueue()
    run()
    said = line(seen[0])
    assert said[2].words == "Its handler said how far it is"
    assert said[2].about == [" ".join(f"40% page 4 {HOSTILE}".split())]
    assert (said[3].words, said[3].ahead) == ("Unless it has ended, it times out", True)
    assert "What it is doing It is executing" in seen[0].one(id="job-head").text


def test_a_request_is_in_the_line_with_its_headers_but_for_secrets(
    site: Site, queue: Queue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK_SECRET", "whsec_" + "c2VjcmV0" * 4)
    charge = queue.request(
        "charge",
        to="http://ann:secret@127.0.0.1:1/secret?token=secret",
        retry=None,
        headers={
            "Authorization": "secret",
            "X-Api-Key": "secret",
            "X-Shop-Token": "secret",
            "Set-Cookie2": "secret",
            "X-Signature": "secret",
            "Idempotency-Key": "{key} {attempt}",
            "X-Shop": "{data.shop} <b>",
            "X-Card": "{data.card}",
            "X-Whole": "{data}",
            "Card": "secret",
        },
        sign="BANK_SECRET",
    )
    job_id = charge.enqueue({"shop": "rome", "card": "secret"}, key="k ü")
    run()
    sent = next(one for one in line(see(site, f"/jobs/{job_id}")) if one.outside)
    assert sent.words == "Request sent: POST http://127.0.0.1:1"
    names, values = ([one.text for one in sent.element.one("dl").all(name)] for name in ("dt", "dd"))
    assert dict(zip(names, values, strict=True)) == {
        "hipq-key": "k %C3%BC", "hipq-job": str(job_id), "hipq-attempt": "1", "authorization": "•••",
        "x-api-key": "•••", "x-shop-token": "•••", "set-cookie2": "•••", "x-signature": "•••",
        "idempotency-key": "k ü 1", "x-shop": "rome <b>", "x-card": "•••", "x-whole": '{"shop":"rome","card":"•••"}',
        "card": "•••", "webhook-signature": "•••",
    }  # fmt: skip
    assert "secret" not in go(site, f"/jobs/{job_id}").body.decode()


def test_a_long_history_says_what_was_left_out(site: Site, queue: Queue, run: Run, clock: HandClock) -> None:
    @queue.job(retry=fixed(1, attempts=99))
    def work(_job: Job[Any]) -> None:
        raise OSError("down")

    job_id = work.enqueue()
    for _ in range(30):
        run()
        clock.advance(seconds=1)
    found = told(site, job_id)
    assert len(found) < 45
    (left,) = (text for text in found if "left out" in text)
    assert left == "66 more things happened, which are left out"
    claims = [text.partition(", ")[2] for text in found if text.startswith("Claimed")]
    assert (claims[:2], claims[-1]) == (["attempt 1", "attempt 2"], "attempt 30"), "counted from both ends"


def test_an_event_of_a_newer_program_is_shown_as_it_is(app: Hipq, queue: Queue) -> None:
    job_id = queue.enqueue("work")
    row = app.store.get(job_id)
    assert row is not None
    new = msgspec.structs.replace(row, history=remember("[]", 1, "teleported", to=HOSTILE))
    assert [(one.text, one.detail) for one in conversation(Scene(new))][1:] == [("Teleported", f"to {HOSTILE}")]
    for broken in ("", "{", "7", '[{"at": 1}]'):
        assert conversation(Scene(msgspec.structs.replace(row, history=broken, wait="?", meta="?")))


# -- why it does not run ---------------------------------------------------------------------------------------------
def test_why_it_is_not_running_and_the_job_in_its_way(site: Site, app: Hipq, clock: HandClock) -> None:
    mails = app.queue("mails", limits=[limit(1)])
    mails.job("mail")(lambda _: Wait())
    first = mails.enqueue("mail")
    app.run(until_empty=True)
    second = mails.enqueue("mail")
    engine = app.engine()
    engine.turn()
    head = see(site, f"/jobs/{second}").one(id="job-head")
    assert "Why it is not running" in head.text
    assert "limit 1 is full" in head.text
    assert "/rules" in [link.attributes["href"] for link in head.all("a")]
    assert [link.attributes["href"] for link in head.one(class_="holders").all("a")] == [f"/jobs/{first}"]
    clock.advance(seconds=1)
    assert "/rules" not in [link.attributes["href"] for link in see(site, f"/jobs/{first}").one(id="job-head").all("a")]
    engine.executor.close()


# -- every phase -----------------------------------------------------------------------------------------------------
def test_a_job_that_waits_for_a_strategy_that_is_registered_elsewhere(
    site: Site, queue: Queue, make_app: Callable[[], Hipq], run: Run
) -> None:
    queue.job("work", retry=None)(lambda _: 1 / 0)
    job_id = make_app().queue("orders").enqueue("work", retry="patient")
    run()
    page = see(site, f"/jobs/{job_id}")
    assert page.one(id="job-head").one("span", class_="state").text == "deciding"
    assert told(site, job_id)[-1] == "Attempt 1 failed"
    assert ["Retries", "patient"] in [
        [name.text, value.text]
        for name, value in zip(page.one("dl").all("dt"), page.one("dl").all("dd"), strict=True)
    ]  # fmt: skip


def test_what_a_throttler_does_to_jobs(site: Site, app: Hipq, queue: Queue, clock: HandClock) -> None:
    def after(move: Callable[[Row], Row]) -> int:
        row = app.store.get(queue.enqueue("work"))
        assert row is not None
        app.store.turn(0, [Change(row, move(row))], [], clock.now())
        return row.id

    parked = after(lambda row: transitions.parked(row, clock.now()))
    assert see(site, f"/jobs/{parked}").one(id="job-head").one("span", class_="state").text == "held back"
    deferred = after(lambda row: transitions.deferred(row, clock.now() + 300_000_000, queue.order, clock.now()))
    assert told(site, deferred)[-2:] == ["Put off by its queue's throttler", "May start"]
    last = line(see(site, f"/jobs/{after(lambda row: transitions.rejected(row, HOSTILE, clock.now()))}"))[-1]
    assert last.words == "Ended: refused by its queue's throttler"
    assert last.about == [" ".join(HOSTILE.split())]
