"""A masked value is on no page, and no list tells whether there is one like it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq import Hipq, Job
from hipq.dashboard.masks import MASK, masked
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role
from tests.dashboard.seen import go, see

SECRET = "4111-1111"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Hipq]:
    app = Hipq("shop", f"sqlite:///{tmp_path}/shop.db")

    @app.queue("orders").job("charge", retry=None)
    def charge(job: Job[dict[str, str]]) -> None:
        raise RuntimeError(f"refused: card: {job.data['card']}")

    app.migrate()
    charge.enqueue({"card": SECRET}, key="order-1")
    app.run(until_empty=True)
    yield app
    app.close()


@pytest.fixture
def site(app: Hipq) -> Site:
    return Site([app], mask=["card"])


def test_an_answer_is_shown_without_it(app: Hipq, site: Site) -> None:
    app.answer("orders", "charge", "order-2", {"card": SECRET, "paid": True})
    page = see(site, "/answers/1", Role.VIEW).text
    assert SECRET not in page
    assert MASK in page
    assert "paid" in page


def test_a_long_answer_is_cut(app: Hipq) -> None:
    app.answer("orders", "charge", "order-2", "x" * 1_000_000)
    page = see(Site([app]), "/answers/1", Role.VIEW)
    assert len(page.text) < 100_000
    assert page.one("a", href="/answers/1/data").text == "Download it whole"


def test_an_error_in_the_list_is_shown_without_it(site: Site) -> None:
    reply = go(site, "/jobs", Role.VIEW).body.decode()
    assert "refused: card: " in reply
    assert SECRET not in reply


@pytest.mark.parametrize(("error", "jobs"), [("refused", 1), ("card: 4", 0), ("4111", 0), ("RuntimeError", 1)])
def test_nobody_guesses_it_by_looking_for_errors(site: Site, error: str, jobs: int) -> None:
    assert len(see(site, f"/jobs?error={error}", Role.VIEW).one("tbody", id="rows").all("tr")) == jobs
    title = see(site, f"/bulk?do=requeue&all=1&error={error}", Role.OPERATE).one("h1").text
    assert title == f"Requeue {jobs} job{'s' * (jobs != 1)}?"


def test_nobody_guesses_it_in_json_within_a_payload(app: Hipq, site: Site) -> None:
    site.queue("orders").enqueue("charge", {"raw": '{"card":"1"}'})
    assert see(Site([app]), '/jobs?payload=raw={"card":"1"}').one("tbody", id="rows").all("tr")
    assert not see(site, '/jobs?payload=raw={"card":"1"}').one("tbody", id="rows").all("tr")


def test_what_a_running_job_says_is_shown_without_it(app: Hipq, site: Site) -> None:
    says, may_end = threading.Event(), threading.Event()

    @site.queue("orders").job("slow")
    def slow(job: Job[None]) -> None:
        job.progress(0.5, f"card={SECRET}")
        says.set()
        may_end.wait(30)

    slow.enqueue(None)
    with app.working():
        try:
            assert says.wait(30)
            for path in ("/", "/queues/orders"):
                until = time.monotonic() + 30
                while "50%" not in (page := go(site, path, Role.VIEW).body.decode()) and time.monotonic() < until:
                    time.sleep(0.05)
                assert f"50% card={MASK}" in page
                assert SECRET not in page
        finally:
            may_end.set()


def test_a_long_text_with_many_values_is_masked_at_once() -> None:
    text = "card: 1\n" * 200_000
    began = time.monotonic()
    assert masked(text, ["card"]) == f"card: {MASK}\n" * 200_000
    assert time.monotonic() - began < 5, "it took time by the square of its length"
