"""Operations on many jobs, while jobs, people and the database go on meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from threading import current_thread
from typing import Any

import msgspec
import pytest

from hipq.dashboard.bulk import Chosen
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role
from hipq.errors import StoreUnavailable
from hipq.stores.filters import Filter
from hipq.testing.clock import HandClock
from tests.dashboard.seen import do, see
from tests.dashboard.shop_jobs import queue
from tests.dashboard.test_bulk import ended, fields, figures, many, run, site, undo

__all__ = ["site"]


def _rows(site: Site) -> list[Any]:
    return list(site.store.find(Filter(queue(site).number, limit=5_000), brief=True))


def turn(site: Site, **by: float) -> None:
    clock = site.apps[0].database.clock
    assert isinstance(clock, HandClock)
    clock.advance(**by)


@pytest.mark.parametrize("choice", ["all=1", "all=1&since=1h", "all=1&before=2100-01-01", "all=1&state=scheduled"])
def test_jobs_that_are_added_while_the_question_is_read_are_not_meant(site: Site, choice: str) -> None:
    many(site, 3, delay=60)
    form = fields(see(site, f"/bulk?do=cancel&{choice}", Role.OPERATE))
    queue(site).enqueue("charge", key="late", delay=60)
    queue(site, "mails").enqueue("send", key="late", delay=60)
    page = ended(site, do(site, "/bulk", form))
    assert page.one("h1").text == "Cancel 3 jobs"
    assert figures(page) == ["Done", "3", "0"]


def test_a_time_ago_is_counted_from_the_question(site: Site) -> None:
    (before,) = many(site, 1, delay=60_000)
    turn(site, minutes=5)
    queue(site).enqueue("charge", key="younger", delay=60_000)
    form = fields(see(site, "/bulk?do=cancel&all=1&before=2m", Role.OPERATE))
    turn(site, minutes=30)  # coffee
    assert figures(ended(site, do(site, "/bulk", form))) == ["Done", "1", "0"]
    assert site.apps[0].job(before).code == "cancelled"


@pytest.mark.parametrize("choice", ["all=1", "all=1&since=1d"])
def test_jobs_that_are_added_again_and_fail_again_are_not_added_for_ever(
    site: Site, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    many(site, 120)
    site.apps[0].run(until_empty=True)
    rows = Chosen.rows

    def with_fast_workers(self: Chosen, store: Any) -> Iterator[Any]:
        for step in rows(self, store):
            yield step
            site.apps[0].run(until_empty=True)

    monkeypatch.setattr(Chosen, "rows", with_fast_workers)
    assert figures(run(site, f"/bulk?do=requeue&{choice}")) == ["Done", "120", "0"]


@pytest.mark.parametrize("action", ["change", "run"])
def test_what_somebody_else_has_changed_since_is_not_put_back(site: Site, action: str) -> None:
    mine, theirs = many(site, 2, delay=60)
    page = run(site, f"/bulk?do={action}&all=1", **({"at": "2h"} if action == "change" else {}))
    site.apps[0].jobs.change(theirs, delay=5 * 3600, priority=1)
    before = {row.id: (row.scheduled_run_time, row.priority) for row in _rows(site)}
    page = undo(site, page)
    assert figures(page) == ["Done", "1", "1"]
    assert f"job {theirs} has started or was changed since, and stays as it is" in page.text
    after = {row.id: (row.scheduled_run_time, row.priority) for row in _rows(site)}
    assert after[theirs] == before[theirs]
    assert after[mine] != before[mine]


def test_an_operation_ends_whose_database_tells_no_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("the database is away")
        yield

    (job_id,) = many(site, 1, delay=60)
    with monkeypatch.context() as patch:
        patch.setattr(Chosen, "rows", away)
        ask = fields(see(site, f"/bulk?do=run&job={job_id}", Role.OPERATE))
        now, here = type(site.store).now, current_thread()
        patch.setattr(type(site.store), "now", lambda store: now(store) if current_thread() is here else next(away()))
        where = do(site, "/bulk", ask)
        operation = site.operations.get(where.removeprefix("/bulk/"))
        operation.thread.join(60)
    assert operation.is_over
    assert figures(see(site, where, Role.OPERATE)) == ["Failed", "0", "0"]


def test_the_audit_log_says_what_was_done_to_which_jobs(site: Site) -> None:
    many(site, 3, delay=60)
    undo(site, run(site, "/bulk?do=change&all=1&prefix=k-", at="2h"))
    again, first = (msgspec.json.decode(entry.details) for entry in site.store.audit_log(0, 10))
    assert first | {"operation": ""} == {"operation": "", "what": "Change 3 jobs", "prefix": "k-"}
    assert again["what"] == "Put back the time and priority of 3 jobs"
