"""Why a job that has started is not done: an engine has it, it waits for its answer, or for code beside its handler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hipq.engine.why.words import engines_text, fault, history, listed, none_serving, noticed, on_one_line, serving
from hipq.job import meta, states, waiting
from hipq.job.event_names import JobEvent
from hipq.job.model import Row
from hipq.job.waiting import Waiting
from hipq.job.when import to_datetime, utc_text
from hipq.job.why import Reason, Why
from hipq.stores.values import EngineSeen


def final(row: Row) -> Why:
    error = fault(row)
    sentence = f"it ended with {row.code} at {utc_text(row.update_time)}" + (f": {error}" if error else "")
    found = {"code": row.code, "exitcode": row.exitcode, "error": error or states.NONE, "attempt": row.attempt}
    return Why(Reason.FINAL, sentence, found | {"ended": to_datetime(row.update_time)})


# -- an engine has it ------------------------------------------------------------------------------------------------
_DOING: Final = {
    states.EXECUTING: "it is executing",
    states.DECIDING: "its retry handler is being asked",
    states.ANSWERED: "its answer is being looked at",
    states.CANCELLING: "its cancel handler is running",
}


def owned(row: Row, engines: Sequence[EngineSeen]) -> Why:
    engine = next((one for one in engines if one.engine_id == row.owner), None)
    since = _claimed(row) if row.phase == states.EXECUTING else row.update_time
    before, more = _cause(row)
    found = {"engine": row.owner, "label": engine.label if engine else None, "alive": engine is not None,
             "since": to_datetime(since), "attempt": row.attempt} | more  # fmt: skip
    if engine:
        sentence = f"{_DOING[row.phase]}: {engines_text([engine])} has had it since {utc_text(since)}"
    else:
        gone = f"engine {row.owner} had it since {utc_text(since)} and is not alive any more"
        sentence = f"{gone}: {noticed(row, engines)}"
    return Why(row.phase, sentence + (f" ({before})" if before else ""), found)


def _claimed(row: Row) -> int:
    """When the job was claimed. `update_time` may be later: an engine that takes a new lease writes its rows again."""
    return next(
        (entry["at"] for entry in reversed(history(row)) if entry["event"] == JobEvent.CLAIMED), row.update_time
    )


def _cause(row: Row) -> tuple[str, dict[str, Any]]:
    """Why the job's answer is looked at again, or why the job is cancelled."""
    wait = waiting.to_show(row.wait)
    if row.phase == states.ANSWERED and wait.tries:
        return _failures(row, wait)
    if row.phase == states.CANCELLING and wait.cause:
        cause = on_one_line(wait.cause)
        return f"why: {cause}", {"cause": cause}
    return "", {}


def _failures(row: Row, wait: Waiting) -> tuple[str, dict[str, Any]]:
    """How often the job's answer handler has failed, and its last error."""
    failures = [entry for entry in history(row) if entry["event"] == JobEvent.ANSWER_FAILED]
    error = on_one_line(failures[-1]["error"]) if failures else None
    times = {1: "once", 2: "twice"}.get(wait.tries, f"{wait.tries} times")
    said = f"its answer handler has failed {times}" + (f", the last time with {error}" if error else "")
    return said, {"tries": wait.tries, "error": error}


# -- it waits for its answer -----------------------------------------------------------------------------------------
_TIMED_OUT: Final = "no answer came before its time-out at"


def waits(row: Row, engines: Sequence[EngineSeen], now: int) -> Why:
    wait = waiting.to_show(row.wait)
    if wait.tries:
        return _handler_failed(row, wait, engines, now)
    found: dict[str, Any] = {
        "since": to_datetime(row.update_time), "deadline": to_datetime(row.deadline), "attempt": row.attempt
    }  # fmt: skip
    until, sliding = utc_text(row.deadline), wait.heartbeat and row.deadline < wait.until
    if wait.heartbeat:
        found |= {"heartbeat": wait.heartbeat, "until": to_datetime(wait.until)}
    if row.deadline <= now:
        missed = f"no sign of life came for {wait.heartbeat:g} s, until" if sliding else _TIMED_OUT
        return Why(Reason.WAITING, f"{missed} {until}: {noticed(row, engines)}", found)
    if sliding:
        sign = f"it waits for its answer: a sign of life must come by {until}"
        return Why(Reason.WAITING, f"{sign}, and the last answer by {utc_text(wait.until)}", found)
    return Why(Reason.WAITING, f"it waits for its answer, until {until} at the latest", found)


def _handler_failed(row: Row, wait: Waiting, engines: Sequence[EngineSeen], now: int) -> Why:
    """The job has its answer, and waits until its answer handler is called again."""
    said, found = _failures(row, wait)
    again = f"is called again at {utc_text(row.deadline)}"
    if row.deadline <= now:
        again = f"was to be called again at {utc_text(row.deadline)}: {noticed(row, engines)}"
    return Why(Reason.ANSWER_FAILED, f"{said}, and {again}", found | {"again": to_datetime(row.deadline)})


# -- it waits for code beside its handler ----------------------------------------------------------------------------
LEFT: Final = {
    states.DECIDING: "it failed, and its retry handler has not been asked",
    states.ANSWERED: "its answer has come, and has not been looked at",
    states.CANCELLING: "it is given up, and its cancel handler has not run",
}


def left(row: Row, engines: Sequence[EngineSeen]) -> Why:
    """Only a missing engine can hold this up: neither limits nor pauses apply."""
    having_code, error, strategy = serving(row, engines), fault(row), _strategy(row)
    able = [one for one in having_code if not strategy or strategy in one.strategies]
    who = f"that is for {engines_text(able)} to do" if able else none_serving(row, engines)
    before, more = _cause(row)
    if having_code and not able:
        more["strategy"] = strategy
        who = f"no engine in which the retry strategy {strategy} is registered is alive, only {engines_text(engines)}"
    what = "its answer is to be looked at again" if "tries" in more else LEFT[row.phase]
    before = before or (f"its error: {error}" if error else "")
    sentence = f"{what}: {who}" + (f" ({before})" if before else "")
    return Why(row.phase, sentence, {"error": error, "engines": listed(able)} | more)


def _strategy(row: Row) -> str:
    """The registered retry strategy that decides on the job; "" = any engine that has the job's code can."""
    own = meta.load(row.meta).retry if row.phase == states.DECIDING else None
    return str(own.get("registered", "")) if own else ""
