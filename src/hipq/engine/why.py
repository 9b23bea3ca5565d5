"""Why a job does not run now, or what it is doing: no step of its life, but a look at it.

All that can stand in a job's way is looked at in turn, and the first thing that does is the reason. Pure: the app reads
the row, the limits and the engines. What limits say is asked of the same code that claims ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from hipq.errors import Invalid
from hipq.job import meta, states, waiting, windows
from hipq.job.fault import Fault, clean
from hipq.job.model import Row, queue_of
from hipq.job.units import UNIT, counted, number
from hipq.job.waiting import Waiting
from hipq.job.when import SECOND, to_datetime
from hipq.job.why import Why
from hipq.limits.admission import Admission, Remembered
from hipq.limits.limit import Limit, PerLane
from hipq.limits.pool import Pool
from hipq.limits.rate import Rate
from hipq.limits.rules import AnyLimit, Rules
from hipq.limits.share import Share
from hipq.limits.tenants import PerTenant, tenant_of
from hipq.stores.claims import ANY_TYPE
from hipq.stores.values import EngineSeen, Holder, Limits

HOLDERS: Final = 10
"""Jobs that are listed as holding a limit, at most."""
NAMED: Final = 3
"""Jobs and engines that a sentence names, at most."""

_remembered = msgspec.json.Decoder(Remembered)


def why(
    row: Row, limits: Limits, engines: Sequence[EngineSeen], now: int, critical: bool = False, heavy: Iterable[Row] = ()
) -> Why:
    """`critical`: limits and throttlers do not hold this job. `heavy`: the jobs that `passed` names."""
    if row.phase == states.DONE:
        return _final(row)
    if row.owner:
        return _in_hands(row, engines)
    if row.phase == states.WAITING:
        return _waiting(row, engines, now)
    if row.phase in _LEFT:
        return _left(row, engines)
    if row.scheduled_run_time > now:  # a ready one too: if the clock was set back, claims leave it alone until then
        return _later(row, now)
    return (
        _barred(row, limits.rules, engines, now)
        or _due(row)
        or (None if critical else _limited(row, limits, engines, now, heavy))
        or (None if critical and row.phase != states.PARKED else _throttled(row, limits))
        or _next(limits.rules.throttled and not critical)
    )


def passed(row: Row, limits: Limits) -> list[int]:
    """The heavy jobs which, as claims remember, others pass in the limits that this job is under."""
    found = _remembered.decode(limits.memory).passed
    places = [found[name] for name in _by_pool(limits.rules, row.lane) if name in found]
    return [job_id for job_id, _, _ in places if job_id != row.id]


# -- it has started --------------------------------------------------------------------------------------------------
def _final(row: Row) -> Why:
    error = _fault(row)
    sentence = f"it ended with {row.code} at {_at(row.update_time)}" + (f": {error}" if error else "")
    found = {"code": row.code, "exitcode": row.exitcode, "error": error or states.NONE, "attempt": row.attempt}
    return Why("final", sentence, found | {"ended": to_datetime(row.update_time)})


# -- an engine has it ------------------------------------------------------------------------------------------------
_DOING: Final = {
    states.EXECUTING: "it is executing",
    states.DECIDING: "its retry handler is being asked",
    states.ANSWERED: "its answer is being looked at",
    states.CANCELLING: "its cancel handler is running",
}


def _in_hands(row: Row, engines: Sequence[EngineSeen]) -> Why:
    engine = next((one for one in engines if one.engine_id == row.owner), None)
    since = _claimed(row) if row.phase == states.EXECUTING else row.update_time
    before, more = _led_here(row)
    found = {"engine": row.owner, "label": engine.label if engine else None, "alive": engine is not None,
             "since": to_datetime(since), "attempt": row.attempt} | more  # fmt: skip
    if engine:
        sentence = f"{_DOING[row.phase]}: {_engines([engine])} has had it since {_at(since)}"
    else:
        gone = f"engine {row.owner} had it since {_at(since)} and is not alive any more"
        sentence = f"{gone}: {_noticed(row, engines)}"
    return Why(row.phase, sentence + (f" ({before})" if before else ""), found)


def _claimed(row: Row) -> int:
    """When it was claimed; an engine that takes a new lease writes its rows again later."""
    return next((entry["at"] for entry in reversed(_history(row)) if entry["event"] == "claimed"), row.update_time)


def _led_here(row: Row) -> tuple[str, dict[str, Any]]:
    """What led to its being looked at again, or called off."""
    wait = waiting.load(row.wait)
    if row.phase == states.ANSWERED and wait.tries:
        return _failed(row, wait)
    if row.phase == states.CANCELLING and wait.cause:
        cause = _on_a_line(wait.cause)
        return f"why: {cause}", {"cause": cause}
    return "", {}


def _failed(row: Row, wait: Waiting) -> tuple[str, dict[str, Any]]:
    """How often its answer handler has failed, and how it did the last time."""
    failures = [entry for entry in _history(row) if entry["event"] == "answer failed"]
    error = _on_a_line(failures[-1]["error"]) if failures else None
    times = {1: "once", 2: "twice"}.get(wait.tries, f"{wait.tries} times")
    said = f"its answer handler has failed {times}" + (f", the last time with {error}" if error else "")
    return said, {"tries": wait.tries, "error": error}


# -- it waits for its answer -----------------------------------------------------------------------------------------
_TIMED_OUT: Final = "no answer came before its time-out at"


def _waiting(row: Row, engines: Sequence[EngineSeen], now: int) -> Why:
    wait = waiting.load(row.wait)
    if wait.tries:
        return _unread(row, wait, engines, now)
    found: dict[str, Any] = {
        "since": to_datetime(row.update_time), "deadline": to_datetime(row.deadline), "attempt": row.attempt
    }  # fmt: skip
    until, sliding = _at(row.deadline), wait.heartbeat and row.deadline < wait.until
    if wait.heartbeat:
        found |= {"heartbeat": wait.heartbeat, "until": to_datetime(wait.until)}
    if row.deadline <= now:
        missed = f"no sign of life came for {wait.heartbeat:g} s, until" if sliding else _TIMED_OUT
        return Why("waiting", f"{missed} {until}: {_noticed(row, engines)}", found)
    if sliding:
        sign = f"it waits for its answer: a sign of life must come until {until}"
        return Why("waiting", f"{sign}, and the last answer until {_at(wait.until)}", found)
    return Why("waiting", f"it waits for its answer, until {until} at the latest", found)


def _unread(row: Row, wait: Waiting, engines: Sequence[EngineSeen], now: int) -> Why:
    """It has its answer, and waits for another try of the code that is to look at it."""
    said, found = _failed(row, wait)
    again = f"is called again at {_at(row.deadline)}"
    if row.deadline <= now:
        again = f"was to be called again at {_at(row.deadline)}: {_noticed(row, engines)}"
    return Why("answer failed", f"{said}, and {again}", found | {"again": to_datetime(row.deadline)})


# -- it waits for other code than its handler ------------------------------------------------------------------------
_LEFT: Final = {
    states.DECIDING: "it failed, and its retry handler has not been asked",
    states.ANSWERED: "its answer has come, and has not been looked at",
    states.CANCELLING: "it is given up, and its cancel handler has not run",
}


def _left(row: Row, engines: Sequence[EngineSeen]) -> Why:
    """Neither limits nor pauses hold that up."""
    serving, error, strategy = _serving(row, engines), _fault(row), _strategy(row)
    able = [one for one in serving if not strategy or strategy in one.strategies]
    who = f"that is for {_engines(able)} to do" if able else _lacking(row, engines)
    before, more = _led_here(row)
    if serving and not able:
        more["strategy"] = strategy
        who = f"no engine in which the retry strategy {strategy} is registered is alive, only {_engines(engines)}"
    what = "its answer is to be looked at again" if "tries" in more else _LEFT[row.phase]
    before = before or (f"its error: {error}" if error else "")
    sentence = f"{what}: {who}" + (f" ({before})" if before else "")
    return Why(row.phase, sentence, {"error": error, "engines": _listed(able)} | more)


# -- its time has not come -------------------------------------------------------------------------------------------
def _later(row: Row, now: int) -> Why:
    event = next((entry["event"] for entry in reversed(_history(row))), "")
    at = _at(row.scheduled_run_time)
    found: dict[str, Any] = {"scheduled_run_time": to_datetime(row.scheduled_run_time)}
    opens = _opening(row, now)
    shut = opens >= row.scheduled_run_time  # else it is wanted at a later opening, or inside of one
    if row.state == states.RETRY and event not in ("window closed", "deferred"):
        error = _fault(row)
        when = f"{at}, when its window opens" if shut else at
        found |= {"error": error, "attempt": row.attempt, "failures": row.failures}
        return Why("retry pending", f"it is tried again at {when}, after {error}", found)
    if shut:
        return _shut(row, opens)
    if event == "deferred":
        return Why("scheduled", f"its queue's throttler has put it off until {at}", found | {"deferred": True})
    return Why("scheduled", f"it is scheduled for {at}", found)


def _opening(row: Row, now: int) -> int:
    """When its windows open; 0 if they are open, or this machine cannot tell."""
    try:
        return 0 if windows.is_open(row.time_windows, now) else windows.opening(row.time_windows, now)
    except Invalid:
        return 0


def _shut(row: Row, opens: int) -> Why:
    hours = windows.describe(row.time_windows)
    found = {"windows": hours, "opens": to_datetime(opens)}
    return Why("window closed", f"its window is closed and opens at {_at(opens)} ({hours})", found)


# -- its time has come -----------------------------------------------------------------------------------------------
def _barred(row: Row, rules: Rules, engines: Sequence[EngineSeen], now: int) -> Why | None:
    """What keeps it from starting however much room there is."""
    if not _serving(row, engines):
        found = {"job_type": row.job_type, "engines": _listed(engines)}
        return Why("no code" if engines else "no engine", _lacking(row, engines), found)
    return _paused(row, rules) or _closed(row, now)


def _lacking(row: Row, engines: Sequence[EngineSeen]) -> str:
    if not engines:
        return "no engine is alive"
    wanted = f"has the code of {row.job_type}" if _on_queue(row, engines) else "works on its queue"
    return f"no engine that {wanted} is alive, only {_engines(engines)}"


def _paused(row: Row, rules: Rules) -> Why | None:
    if rules.paused:
        return Why("paused", "its queue is paused", {"paused": "queue"})
    if row.lane in rules.paused_lanes:
        return Why("paused", f"{_lane(row.lane)} is paused", {"paused": "lane", "lane": row.lane})
    if row.job_type in rules.paused_types:
        return Why("paused", f"job type {row.job_type} is paused", {"paused": "type", "job_type": row.job_type})
    return None


def _closed(row: Row, now: int) -> Why | None:
    try:
        is_open = windows.is_open(row.time_windows, now)
    except Invalid as error:
        sentence = f"whether its window is open cannot be told here: {error}"
        return Why("window unknown", sentence, {"windows": windows.describe(row.time_windows)})
    return None if is_open else _shut(row, windows.opening(row.time_windows, now))


def _due(row: Row) -> Why | None:
    if row.phase != states.SCHEDULED:
        return None
    sentence = f"it is due since {_at(row.scheduled_run_time)}: an engine makes it ready at its next turn"
    return Why("due", sentence, {"scheduled_run_time": to_datetime(row.scheduled_run_time)})


def _throttled(row: Row, limits: Limits) -> Why | None:
    throttled = limits.rules.throttled
    if throttled and limits.note:
        note = " ".join(limits.note.split())
        return Why("throttler failed", f"its queue's throttler could not be asked: {note}", {"note": limits.note})
    if row.phase != states.PARKED:
        return None
    after = "is asked about it again" if throttled else "is gone: an engine makes it ready at its next look"
    sentence = f"its queue's throttler has not admitted it, and {after}"
    return Why("parked", sentence, {"since": to_datetime(row.update_time)})


def _next(throttled: bool) -> Why:
    leave = ", with the leave of its queue's throttler" if throttled else ""
    return Why("next", f"nothing stands in its way: it starts when it is its turn and a hand is free{leave}", {})


# -- limits ----------------------------------------------------------------------------------------------------------
def _limited(row: Row, limits: Limits, engines: Sequence[EngineSeen], now: int, heavy: Iterable[Row]) -> Why | None:
    rules = limits.rules
    ahead = {one.id: one for one in sorted(heavy, key=_place) if _before(one, row, rules)}
    admission = Admission(rules, (), limits.held, limits.memory, now)
    able = [one for one in ahead.values() if _barred(one, rules, engines, now) is None]
    admission.still([(one.job_type, _place(one)) for one in able], ())
    for one in able:
        admission.refusal(one.lane, one.throttle_factor, _place(one))  # a claim, too, comes to it first
    refusal = admission.refusal(row.lane, row.throttle_factor, _place(row))
    if refusal is None:
        return None
    pool, limit = refusal.pool, _by_pool(rules, row.lane)[refusal.pool.name]
    which = _which(limit, row.lane)
    holders = [one for one in limits.holders if _counts(one, limit, row.lane)]
    found = {"limit": str(limit), "cap": number(pool.cap), "used": number(pool.used),
             "needs": number(row.throttle_factor), "lane": row.lane,
             "holders": [{"id": one.id, "units": number(one.held)} for one in holders[:HOLDERS]]}  # fmt: skip
    if refusal.behind:
        return Why("behind", _queued(ahead[refusal.behind], row, rules, which), found | {"behind": refusal.behind})
    if isinstance(limit, Rate):
        sentence = f"{which} is used up: there is room for it at {_at(refusal.again)}"
        return Why("rate", sentence, found | {"again": to_datetime(refusal.again)})
    reason = "limit full" if isinstance(limit, Limit) else "lane full"
    return Why(reason, _no_room(which, pool, row.throttle_factor, holders), found)


def _before(other: Row, row: Row, rules: Rules) -> bool:
    """Whether claims come to the other first, or may."""
    return other.phase == states.READY and (_turns(other, row, rules) or _place(other) < _place(row))


def _turns(other: Row, row: Row, rules: Rules) -> bool:
    """Whether their lanes take turns: which of them is first, each engine knows for itself."""
    return rules.lanes == "fair" and other.lane != row.lane


def _place(row: Row) -> tuple[str, int]:
    return row.rank, row.id


def _by_pool(rules: Rules, lane: str) -> dict[str, AnyLimit]:
    """The limits in force, by the name of the pool in which each counts the jobs of this lane."""
    found: dict[str, AnyLimit] = {}
    for one in rules.in_force:
        match one:
            case Limit():
                found[one.pool({}).name] = one
            case Rate():
                found[one.pool([], 0).name] = one
            case PerLane():
                found[one.pool(lane, {}).name] = one
            case PerTenant():
                if one.knows(lane):
                    found[one.pool(lane, {}).name] = one
            case Share():
                found[one.pool(lane, {}, counted(rules.most)).name] = one
    return found


def _counts(holder: Holder, limit: AnyLimit, lane: str) -> bool:
    match limit:
        case Limit():
            return True
        case PerLane():
            return holder.lane == lane
        case PerTenant():
            return tenant_of(holder.lane) == tenant_of(lane)
        case Share():
            return holder.lane == lane if lane in limit.percent else holder.lane not in limit.percent
        case Rate():
            return False  # it counts starts: nobody holds them


def _which(limit: AnyLimit, lane: str) -> str:
    match limit:
        case Limit() | Rate():
            return f"its queue's {limit}"
        case PerLane():
            return _lane(lane)
        case PerTenant():
            return f"tenant {tenant_of(lane)}"
        case Share():
            return f"the share of {_lane(lane)}" if lane in limit.percent else "the share of other lanes"


def _queued(heavy: Row, row: Row, rules: Rules, which: str) -> str:
    turns = ", unless the turn comes to its own lane first" if _turns(heavy, row, rules) else ""
    needs = f"enough others have, and that one needs {_units(heavy.throttle_factor)} of {which}"
    return f"it may not pass job {heavy.id} any more{turns}: {needs}"


def _no_room(which: str, pool: Pool, factor: int, holders: Sequence[Holder]) -> str:
    by, used = f" by {_ids(holders)}" if holders else "", number(pool.used)
    if factor > pool.cap:
        return f"it needs {_units(factor)} and {which} has {number(pool.cap)}, so it runs alone: {used} taken{by}"
    if pool.full:
        return f"{which} is full: {used} of {_units(pool.cap)} taken{by}"
    return f"it needs {_units(factor)} of {which}, and {number(pool.cap - pool.used)} are left: {used} taken{by}"


# -- words -----------------------------------------------------------------------------------------------------------
def _at(moment: int) -> str:
    digits = "milliseconds" if moment % SECOND else "seconds"
    return to_datetime(moment).isoformat(" ", digits).replace("+00:00", " UTC")


def _units(count: int) -> str:
    return f"{number(count)} unit" if count == UNIT else f"{number(count)} units"


def _lane(lane: str) -> str:
    return f"lane {lane}" if lane else "the lane of jobs without one"


def _ids(holders: Sequence[Holder]) -> str:
    return _some("job", [str(one.id) for one in holders])


def _engines(engines: Sequence[EngineSeen]) -> str:
    return _some("engine", [f"{one.engine_id} ({one.label})" for one in engines])


def _some(noun: str, names: Sequence[str]) -> str:
    named = ", ".join(names[:NAMED]) + (" and others" if len(names) > NAMED else "")
    return f"{noun} {named}" if len(names) == 1 else f"{noun}s {named}"


def _listed(engines: Sequence[EngineSeen]) -> list[dict[str, Any]]:
    return [{"engine_id": one.engine_id, "label": one.label} for one in engines]


def _noticed(row: Row, engines: Sequence[EngineSeen]) -> str:
    """What time alone brings about, any engine on its queue does, with or without its code."""
    return "an engine will notice that soon" if _on_queue(row, engines) else "no engine of its queue is there to notice"


def _on_queue(row: Row, engines: Sequence[EngineSeen]) -> bool:
    return any(str(queue_of(row.id)) in one.serves for one in engines)


def _serving(row: Row, engines: Sequence[EngineSeen]) -> list[EngineSeen]:
    queue = str(queue_of(row.id))
    return [one for one in engines if {row.job_type, ANY_TYPE} & set(one.serves.get(queue, ()))]


def _strategy(row: Row) -> str:
    """The registered retry strategy that is to judge it; "" = any engine that has its code can."""
    own = meta.load(row.meta).retry if row.phase == states.DECIDING else None
    return str(own.get("registered", "")) if own else ""


def _fault(row: Row) -> str | None:
    """What went wrong, on one line."""
    return None if row.error == states.NONE else _on_a_line(Fault.load(row.error))


def _on_a_line(text: object) -> str:
    return clean(" ".join(str(text).split()), 300)


def _history(row: Row) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.json.decode(row.history)
    return found
