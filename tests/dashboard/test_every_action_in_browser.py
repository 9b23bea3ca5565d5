"""Everything that an operator can do, done once with the mouse, and what the store has afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from hipq.dashboard.site import ROUTES, action_of
from hipq.dashboard.visit import Role
from hipq.limits.rules import Rules
from tests.dashboard.person import Person, person

NOT_CLICKED: Final = {"bulk stop"}
"""It is there only while something lasts: test_bulk.py has it."""


def job(ada: Person, key: str) -> int:
    ada.go(f"/jobs/{ada.shop.ids[key]}")
    return ada.shop.ids[key]


def rules(ada: Person) -> Rules:
    return ada.app.store.limits(ada.app.declared.find("orders").number).rules


# -- one job ---------------------------------------------------------------------------------------------------------
def cancels(ada: Person) -> None:
    job_id = job(ada, "later-0")
    ada.press("Cancel", "main")
    ada.write("reason", "no longer wanted")
    ada.press("Cancel the job")
    row = ada.app.jobs.row(job_id)
    assert (row.state, row.code) == ("final", "cancelled")
    assert "no longer wanted" in row.error
    assert "It is cancelled" in ada.see(".notice")


def runs_now(ada: Person) -> None:
    for key, name in (("later-1", "Run now"), ("settle-14", "Retry now")):
        job_id = job(ada, key)
        ada.press(name, "main")
        assert ada.app.jobs.row(job_id).phase == "ready"


def adds_again(ada: Person) -> None:
    job_id = job(ada, "refund-broken")
    ada.press("Add it again")
    added = ada.app.jobs.row(int(ada.path.rpartition("/")[2]))
    assert (added.id > job_id, added.job_key, added.phase) == (True, "refund-broken", "ready")


def changes_the_priority(ada: Person) -> None:
    job_id = job(ada, "later-2")
    ada.press("Change", "main")
    ada.write("priority", "7")
    ada.press("Change the job")
    assert ada.app.jobs.row(job_id).priority == 7


# -- many jobs -------------------------------------------------------------------------------------------------------
def is_done(ada: Person, done: int) -> None:
    ada.browser.eventually("document.querySelector('#progress h2').innerText == 'Done'")
    assert ada.see(".figures b") == str(done)


def states(ada: Person, *keys: str) -> set[str]:
    return {ada.app.jobs.row(ada.shop.ids[key]).code for key in keys}


def cancels_those_selected(ada: Person) -> None:
    ada.go("/jobs?prefix=newsletter-")
    for key in ("newsletter-1", "newsletter-4"):
        ada.check(f"[value='{ada.shop.ids[key]}']")
    assert ada.see("[data-checked]") == "2 selected"
    ada.press("Cancel", "#list")
    ada.press("Cancel 2 jobs")
    is_done(ada, 2)
    assert states(ada, "newsletter-1", "newsletter-4") == {"cancelled"}
    assert "cancelled" not in states(ada, "newsletter-0", "newsletter-2", "newsletter-3", "newsletter-5")


def changes_all_that_match(ada: Person) -> None:
    keys = [f"receipt-next-{n}" for n in range(5)]
    ada.go("/jobs?prefix=receipt-next")
    ada.check("[name=all]")
    ada.press("Change", "#list")
    ada.write("priority", "3")
    ada.press("Change 5 jobs")
    is_done(ada, 5)
    assert {ada.app.jobs.row(ada.shop.ids[key]).priority for key in keys} == {3}
    ada.press("Put back")
    is_done(ada, 5)
    assert {ada.app.jobs.row(ada.shop.ids[key]).priority for key in keys} == {100}


# -- answers ---------------------------------------------------------------------------------------------------------
def delivers_again(ada: Person) -> None:
    for key, outcome in (("", "buffered"), ("order-waiting", "matched")):
        one = ada.app.answers.list(state="buffered", limit=1)[0]
        ada.go(f"/answers/{one.id}")
        if key:
            ada.write("key", key)
        ada.press("Deliver again")
        assert f"now: {outcome}" in ada.see(".notice")
    row = ada.app.jobs.row(ada.shop.ids["order-waiting"])
    assert row.phase in ("answered", "done")


def deletes_answers(ada: Person) -> None:
    one, other = ada.app.answers.list(state="buffered", limit=2)
    ada.go(f"/answers/{one.id}")
    ada.press("Delete it")
    ada.check(f"[value='{other.id}']")
    ada.press("Delete those selected")
    assert not {one.id, other.id} & {left.id for left in ada.app.answers.list(state="buffered")}


# -- rules -----------------------------------------------------------------------------------------------------------
def pauses_and_resumes(ada: Person) -> None:
    ada.go("/rules")
    ada.press("Pause", "#queue-1")
    assert rules(ada).paused
    ada.press("Resume", "#queue-1")
    assert not rules(ada).paused


def tries_and_sets_a_limit(ada: Person) -> None:
    ada.go("/rules")
    ada.unfold("Change the limits", "#queue-1")
    ada.write("most", "5", "#queue-1")
    ada.press("Try it", "#queue-1")
    assert "limit 5" in ada.see("main dl")
    assert "limit 100" in [str(one) for one in rules(ada).in_force]
    ada.press("Set these limits")
    assert "limit 5" in [str(one) for one in rules(ada).in_force]


def turns_schedules(ada: Person) -> None:
    def schedule() -> tuple[str, str, str]:
        daily, _ = sorted(ada.app.cron.list("reports"), key=lambda one: one.name)
        return daily.state, daily.expression, daily.tz

    ada.go("/rules")
    for name, state in (("Pause", "paused"), ("Resume", "ticking")):
        ada.press(name, "#queue-3 tbody")
        assert schedule()[0] == state
    ada.unfold("Change a schedule", "#queue-3")
    ada.write("expression", "30 7 * * *", "#queue-3")
    ada.press("Change", "#queue-3")
    assert schedule()[1:] == ("30 7 * * *", "Europe/Rome")
    ada.press("Run now", "#queue-3 tbody")
    assert ada.app.jobs.row(int(ada.path.rpartition("/")[2])).job_type == "daily"


def goes_and_comes_back(ada: Person) -> None:
    ada.press("Log out", "header")
    assert ada.path == "/login"
    ada.go("/audit")
    assert ada.path == "/login"
    ada.log_in()
    assert ada.path == "/audit"


ACTIONS: Final[tuple[Callable[[Person], None], ...]] = (
    cancels, runs_now, adds_again, changes_the_priority, cancels_those_selected, changes_all_that_match, delivers_again,
    deletes_answers, pauses_and_resumes, tries_and_sets_a_limit, turns_schedules, goes_and_comes_back,
)  # fmt: skip


def test_every_action(tmp_path: Path) -> None:
    """On SQLite: what they do on other stores is tested without a browser."""
    with person("sqlite", tmp_path) as ada:
        for action in ACTIONS:
            action(ada)
            assert ada.complaints() == [], action.__name__
        done = {entry.action for entry in ada.app.store.audit_log(1 << 62, 1000)}
        posts = {action_of(route) for route in ROUTES if route.method == "POST" and route.role is not Role.NOBODY}
        assert done | NOT_CLICKED >= posts | {"log in", "log out"}
