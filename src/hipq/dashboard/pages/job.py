"""One job: its conversation with the service outside, what it carries, and what can be done to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hipq.dashboard import bodies
from hipq.dashboard.conversation import Entry, Scene, conversation
from hipq.dashboard.masks import masked
from hipq.dashboard.pages import job_actions, job_downloads
from hipq.dashboard.pages.job_actions import offered
from hipq.dashboard.pages.job_relatives import relatives
from hipq.dashboard.pages.job_row import row_of
from hipq.dashboard.sent_headers import sent_headers
from hipq.dashboard.visit import PageRoute, Reply, Role, Visit
from hipq.errors import Invalid
from hipq.job import meta, waiting
from hipq.job.answer import BUFFERED, Kept
from hipq.job.fault import Fault
from hipq.job.model import Row
from hipq.job.retries import in_words
from hipq.job.states import FINAL, NONE
from hipq.job.units import number, units_text
from hipq.job.why import Reason, Why
from hipq.job.windows import describe
from hipq.stores.filters import AnswerFilter

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

FEW: Final = 50
"""Answers that the time line has, at most."""
SMALL: Final = 8 << 10
"""Characters of an answer that the time line shows."""
_WITHOUT_RULE: Final = frozenset({
    Reason.FINAL, Reason.EXECUTING, Reason.WAITING, Reason.ANSWERED, Reason.ANSWER_FAILED, Reason.CANCELLING,
    Reason.DECIDING, Reason.RETRY_PENDING, Reason.SCHEDULED, Reason.NO_ENGINE, Reason.NO_CODE, Reason.DUE, Reason.NEXT,
})  # fmt: skip
"""Reasons that are no rule of the queue. All others are: limits may have reasons of their own."""
_UNREADABLE: Final = "another program wrote what cannot be read here"
_COLUMNS: Final[Sequence[tuple[str, Callable[[Row], str], Callable[[str], object]]]] = (
    ("What its wait says", lambda row: row.wait, waiting.load),
    ("What it was added with", lambda row: row.meta, meta.load),
)
"""Columns of JSON that would else say nothing, if they cannot be read."""


def page(site: Site, visit: Visit) -> Reply:
    queue, row = row_of(site, visit)
    store, now, mask = site.store, site.store.now(), site.mask
    answers, more = _answers(site, row)
    engines = {one.engine_id: one.label for one in store.engines()}
    scene = Scene(
        row,
        now,
        answers,
        engines,
        None if row.state == FINAL else store.progress(row.id, row.attempt),
        sent_headers(queue, row, mask),
    )
    why = None if row.state == FINAL else queue.app.why(row.id)
    return site.render(
        "job.html",
        visit,
        now=now,
        job=row,
        queue=site.name(queue),
        line=[_without_secrets(entry, site) for entry in conversation(scene)],
        answers={one.id: bodies.shown(one.data, mask, most=SMALL) for one in answers},
        more_answers=more,
        why=why and masked(why.sentence, mask),
        is_rule=why is not None and why.reason not in _WITHOUT_RULE,
        holders=_holders(why) if why else [],
        fault=None if row.error == NONE else masked(str(Fault.load(row.error)), mask),
        payload=bodies.shown(row.job_data, mask, of_daemon=bool(row.tenant)),
        result=bodies.shown(row.result, mask, of_daemon=bool(row.tenant)) if row.result else None,
        facts=_facts(row, engines),
        relatives=relatives(site, row),
        actions=offered(row, now),
        done=job_actions.SENTENCES.get(visit.asked("done"), ""),
    )


def _answers(site: Site, row: Row) -> tuple[list[Kept], bool]:
    """The answers of this job, those that are kept until it wants them too; and whether there are more."""
    queue = site.queue_of(row.id).number
    found = site.store.answers(AnswerFilter(queue, job=row.id, limit=FEW + 1))
    if row.state != FINAL:
        for key in row.answer_keys:
            kept = AnswerFilter(queue, row.job_type, key, BUFFERED, limit=FEW + 1)
            found += [one for one in site.store.answers(kept) if one.job == 0 and one.tenant == row.tenant]
    found = sorted({one.id: one for one in found}.values(), key=lambda one: one.id)
    return found[:FEW], len(found) > FEW


def _without_secrets(entry: Entry, site: Site) -> Entry:
    """Errors, reasons and what handlers print quote payloads."""
    texts = {name: masked(getattr(entry, name), site.mask) for name in ("detail", "traceback", "printed")}
    return entry._replace(**texts)


def _holders(why: Why) -> list[int]:
    """The jobs that have what this one waits for."""
    behind = why.details.get("behind")
    return [behind] if behind else [one["id"] for one in why.details.get("holders", ())]


def _facts(row: Row, engines: dict[int, str]) -> list[tuple[str, Any, str]]:
    """Names, values and what these are: a text, a moment or seconds. What says nothing is left out."""
    ended = row.state == FINAL
    own, wait = meta.to_show(row.meta), waiting.to_show(row.wait)
    owner = f"engine {row.owner} ({engines.get(row.owner, 'it is gone')})" if row.owner else ""
    found: list[tuple[str, Any, str]] = [
        ("Attempt", row.attempt, "text"),
        ("Failures", row.failures, "text"),
        ("Crashes", row.crashes_counted, "text"),
        ("Exit code", row.exitcode if ended else 0, "text"),
        ("Priority", row.priority, "text"),
        ("Throttle factor", number(row.throttle_factor), "text"),
        ("Holds", units_text(row.held) if row.held else "", "text"),
        ("Tenant", row.tenant, "text"),
        ("Lane", row.lane, "text"),
        ("Windows", "" if row.time_windows == "[]" else _windows(row), "text"),
        ("Retries", in_words(own.retry) if own.retry else "", "text"),
        ("Then", own.then, "text"),
        ("Engine", owner, "text"),
        ("Time-out", row.timeout, "lasting"),
        ("Signs of life", wait.heartbeat, "lasting"),
        ("Key of its wait", row.wait_key, "text"),
        *((name, _UNREADABLE, "text") for name, text, load in _COLUMNS if not _is_read(text(row), load)),
        ("Added", row.create_time, "time"),
        ("Due", row.scheduled_run_time, "time"),
        ("Deadline", 0 if ended else row.deadline, "time"),
        ("Ended" if ended else "Changed", row.update_time, "time"),
    ]
    return [fact for fact in found if fact[1] or fact[0] in ("Attempt", "Priority")]


def _windows(row: Row) -> str:
    try:
        return describe(row.time_windows)
    except Invalid:
        return _UNREADABLE


def _is_read(text: str, load: Callable[[str], object]) -> bool:
    try:
        load(text)
    except msgspec.DecodeError:
        return False
    return True


ROUTES: Final = (
    PageRoute("GET", "/jobs/{id}", Role.VIEW, page),
    *job_actions.ROUTES,
    *job_downloads.ROUTES,
)
