"""Why a job has not started: its time, its window, a pause, a throttler, a limit, or no engine with its code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from hipq.engine.why.words import fault, history, listed, none_serving, serving, some
from hipq.errors import Invalid
from hipq.job import states, windows
from hipq.job.event_names import JobEvent
from hipq.job.model import Row
from hipq.job.units import number, units_text
from hipq.job.when import to_datetime, utc_text
from hipq.job.why import Reason, Why
from hipq.limits.admission import Admission, Remembered
from hipq.limits.base import lane_text
from hipq.limits.rules import Rules
from hipq.stores.values import EngineSeen, Limits

HOLDERS: Final = 10
"""The most jobs to list as holding units of a limit."""

_remembered = msgspec.json.Decoder(Remembered)


# -- its time has not come -------------------------------------------------------------------------------------------
def later(row: Row, now: int) -> Why:
    event = next((entry["event"] for entry in reversed(history(row))), "")
    at = utc_text(row.scheduled_run_time)
    found: dict[str, Any] = {"scheduled_run_time": to_datetime(row.scheduled_run_time)}
    opens = _opening(row, now)
    shut = opens >= row.scheduled_run_time  # if not, its time is inside a window, or at a later opening
    if row.state == states.RETRY and event not in (JobEvent.WINDOW_CLOSED, JobEvent.DEFERRED):
        error = fault(row)
        when = f"{at}, when its window opens" if shut else at
        found |= {"error": error, "attempt": row.attempt, "failures": row.failures}
        return Why(Reason.RETRY_PENDING, f"it is tried again at {when}, after {error}", found)
    if shut:
        return _shut(row, opens)
    if event == JobEvent.DEFERRED:
        return Why(Reason.SCHEDULED, f"its queue's throttler has put it off until {at}", found | {"deferred": True})
    return Why(Reason.SCHEDULED, f"it is scheduled for {at}", found)


def _opening(row: Row, now: int) -> int:
    """When the job's windows open; 0 if one is open, or this machine cannot tell."""
    try:
        return 0 if windows.is_open(row.time_windows, now) else windows.opening(row.time_windows, now)
    except Invalid:
        return 0


def _shut(row: Row, opens: int) -> Why:
    hours = windows.describe(row.time_windows)
    found = {"windows": hours, "opens": to_datetime(opens)}
    return Why(Reason.WINDOW_CLOSED, f"its window is closed and opens at {utc_text(opens)} ({hours})", found)


# -- its time has come -----------------------------------------------------------------------------------------------
def barred(row: Row, rules: Rules, engines: Sequence[EngineSeen], now: int) -> Why | None:
    """What keeps the job from starting, however much room its limits leave."""
    if not serving(row, engines):
        found = {"job_type": row.job_type, "engines": listed(engines)}
        return Why(Reason.NO_CODE if engines else Reason.NO_ENGINE, none_serving(row, engines), found)
    return _paused(row, rules) or _closed(row, now)


def _paused(row: Row, rules: Rules) -> Why | None:
    if rules.paused:
        return Why(Reason.PAUSED, "its queue is paused", {"paused": "queue"})
    if row.lane in rules.paused_lanes:
        return Why(Reason.PAUSED, f"{lane_text(row.lane)} is paused", {"paused": "lane", "lane": row.lane})
    if row.job_type in rules.paused_types:
        return Why(Reason.PAUSED, f"job type {row.job_type} is paused", {"paused": "type", "job_type": row.job_type})
    return None


def _closed(row: Row, now: int) -> Why | None:
    try:
        is_open = windows.is_open(row.time_windows, now)
    except Invalid as error:
        sentence = f"whether its window is open cannot be told here: {error}"
        return Why(Reason.WINDOW_UNKNOWN, sentence, {"windows": windows.describe(row.time_windows)})
    return None if is_open else _shut(row, windows.opening(row.time_windows, now))


def due(row: Row) -> Why | None:
    if row.phase != states.SCHEDULED:
        return None
    sentence = f"it is due since {utc_text(row.scheduled_run_time)}: an engine makes it ready at its next turn"
    return Why(Reason.DUE, sentence, {"scheduled_run_time": to_datetime(row.scheduled_run_time)})


def throttled(row: Row, limits: Limits) -> Why | None:
    has_throttler = limits.rules.throttled
    if has_throttler and limits.note:
        note = " ".join(limits.note.split())
        return Why(Reason.THROTTLER_FAILED, f"its queue's throttler could not be asked: {note}", {"note": limits.note})
    if row.phase != states.PARKED:
        return None
    after = "is asked about it again" if has_throttler else "is gone: an engine makes it ready at its next look"
    sentence = f"its queue's throttler has not admitted it, and {after}"
    return Why(Reason.PARKED, sentence, {"since": to_datetime(row.update_time)})


def is_next(has_throttler: bool) -> Why:
    admitted = ", and its queue's throttler admits it" if has_throttler else ""
    sentence = f"nothing holds it up: it starts when its turn comes and an engine has a free slot{admitted}"
    return Why(Reason.NEXT, sentence, {})


# -- only limits hold it up: the same code decides here and in claims ---------------------------------------------
def passed(row: Row, limits: Limits) -> list[int]:
    """The heavy jobs that others pass, as claims remember them, in the pools in which this job counts."""
    found = _remembered.decode(limits.memory).passed
    places = [found[name] for name in limits.rules.by_pool(row.lane) if name in found]
    return [job_id for job_id, _, _ in places if job_id != row.id]


def limited(row: Row, limits: Limits, engines: Sequence[EngineSeen], now: int, heavy: Iterable[Row]) -> Why | None:
    rules = limits.rules
    ahead = {one.id: one for one in sorted(heavy, key=_place) if _before(one, row, rules)}
    admission = Admission(rules, (), limits.held, limits.memory, now)
    able = [one for one in ahead.values() if barred(one, rules, engines, now) is None]
    admission.still([(one.job_type, _place(one)) for one in able], ())
    for one in able:
        admission.refusal(one.lane, one.throttle_factor, _place(one))  # a claim, too, comes to it first
    refusal = admission.refusal(row.lane, row.throttle_factor, _place(row))
    if refusal is None:
        return None
    pool, limit = refusal.pool, rules.by_pool(row.lane)[refusal.pool.name]
    holders = [one for one in limits.holders if limit.holds(one.lane, row.lane)]
    found: dict[str, Any] = {
        "limit": str(limit), "cap": number(pool.cap), "used": number(pool.used),
        "needs": number(row.throttle_factor), "lane": row.lane,
        "holders": [{"id": one.id, "units": number(one.held)} for one in holders[:HOLDERS]],
    }  # fmt: skip
    if refusal.behind:
        sentence = _behind(ahead[refusal.behind], row, rules, limit.subject(row.lane))
        return Why(Reason.BEHIND, sentence, found | {"behind": refusal.behind})
    if refusal.again:
        found["again"] = to_datetime(refusal.again)
    named = some("job", [str(one.id) for one in holders]) if holders else ""
    return Why(limit.reason, limit.shortage(row.lane, pool, row.throttle_factor, refusal.again, named), found)


def _before(other: Row, row: Row, rules: Rules) -> bool:
    """Whether claims come to the other job first, or may do so."""
    return other.phase == states.READY and (_take_turns(other, row, rules) or _place(other) < _place(row))


def _take_turns(other: Row, row: Row, rules: Rules) -> bool:
    """Whether the lanes of the two jobs take turns: then each engine knows only for itself which lane is next."""
    return rules.lanes == "fair" and other.lane != row.lane


def _place(row: Row) -> tuple[str, int]:
    return row.rank, row.id


def _behind(heavy: Row, row: Row, rules: Rules, subject: str) -> str:
    turns = ", unless the turn comes to its own lane first" if _take_turns(heavy, row, rules) else ""
    needs = f"enough others have, and that one needs {units_text(heavy.throttle_factor)} of {subject}"
    return f"it may not pass job {heavy.id} any more{turns}: {needs}"
