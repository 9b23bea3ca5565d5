"""A masked field's value is on no page, in no download, and cannot be guessed by searching."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq import Failed, Hipq, Job, Wait
from hipq.dashboard.masks import MASK
from hipq.dashboard.site import ROUTES, Site
from hipq.dashboard.visit import Role
from hipq.testing.clock import HandClock
from tests.dashboard.seen import go, see

SECRET = "4111-1111-1111-1111"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Jobs that carry the secret in their payload, result, error and answers."""
    app = Hipq("shop", f"sqlite:///{tmp_path}/shop.db", clock=HandClock())
    orders = app.queue("orders")

    @orders.job
    def charge(_job: Job[dict[str, str]]) -> Wait:
        return Wait()

    @orders.job(retry=None)
    def crash(job: Job[dict[str, str]]) -> None:
        raise RuntimeError(f"refused: card: {job.data['card']}")

    @orders.job
    def fail(job: Job[dict[str, str]]) -> Failed:
        return Failed(f"declined: card={job.data['card']}")

    app.migrate()
    for key in ("a", "b"):
        charge.enqueue({"card": SECRET}, key=key)
        fail.enqueue({"card": SECRET}, key=key)
    crash.enqueue({"card": SECRET}, key="a")
    app.run(until_empty=True)
    charge.answer("a", {"nested": [{"Card": SECRET}]})
    charge.answer("a", {"card": SECRET, "again": 1})
    charge.answer("nobody", {"card": SECRET})
    yield Site([app], mask=["card"])
    app.close()


def test_it_is_on_no_page_and_in_no_download(site: Site) -> None:
    jobs = [str(job.id) for job in site.apps[0].jobs("orders")]
    answers = [str(one.id) for one in site.apps[0].answers.list()]
    numbers = {"/jobs/": jobs, "/answers/": answers}
    seen = set()
    for route in ROUTES:
        if route.method == "GET":
            (of,) = [found for start, found in numbers.items() if route.pattern.startswith(start)] or [["orders"]]
            for one in of:
                head, _, rest = route.pattern.partition("{")
                path = head + one + rest.partition("}")[2] if rest else head
                reply = go(site, f"{path}?most=5" if path.endswith("/try") else path)
                seen |= {route.pattern} if reply.status == 200 else set()
                assert SECRET.encode() not in reply.body, path
    assert {"/jobs", "/jobs/{id}", "/jobs/{id}/data", "/answers/{number}"} <= seen


def test_it_cannot_be_guessed(site: Site) -> None:
    assert go(site, f"/jobs?payload=card%3D{SECRET}").status == 400
    found, nothing = (see(site, f"/jobs?error={text}").all("tbody") for text in (SECRET, "no-such-text"))
    assert [one.text for one in found] == [one.text for one in nothing]


@pytest.mark.parametrize(("error", "jobs"), [("refused", 1), ("card: 4", 0), ("4111", 0), ("RuntimeError", 1)])
def test_nobody_guesses_it_by_looking_for_errors(site: Site, error: str, jobs: int) -> None:
    assert len(see(site, f"/jobs?error={error}", Role.VIEW).one("tbody", id="rows").all("tr")) == jobs
    title = see(site, f"/bulk?do=requeue&all=1&error={error}", Role.OPERATE).one("h1").text
    assert title == f"Requeue {jobs} job{'s' * (jobs != 1)}?"


def test_nobody_guesses_it_in_json_within_a_payload(site: Site) -> None:
    site.queue("orders").enqueue("charge", {"raw": '{"card":"1"}'})
    assert see(Site(site.apps), '/jobs?payload=raw={"card":"1"}').one("tbody", id="rows").all("tr")
    assert not see(site, '/jobs?payload=raw={"card":"1"}').one("tbody", id="rows").all("tr")


def test_what_a_running_job_says_is_shown_without_it(site: Site) -> None:
    says, may_end = threading.Event(), threading.Event()

    @site.queue("orders").job("slow")
    def slow(job: Job[None]) -> None:
        job.progress(0.5, f"card={SECRET}")
        says.set()
        may_end.wait(30)

    slow.enqueue(None)
    with site.apps[0].working():
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


def test_what_is_not_masked_is_shown(site: Site) -> None:
    assert "declined" in see(site, "/jobs").text
    assert '"again": 1' in "".join(see(site, f"/answers/{one.id}").text for one in site.apps[0].answers.list())
