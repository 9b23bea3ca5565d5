"""Why a job does not start that only limits hold up. The same code decides here and in claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from hipq.engine.why.starting import barred
from hipq.engine.why.words import some
from hipq.job import states
from hipq.job.model import Row
from hipq.job.units import number, units_text
from hipq.job.when import to_datetime
from hipq.job.why import Reason, Why
from hipq.limits.admission import Admission, Remembered
from hipq.limits.rules import Rules
from hipq.stores.values import EngineSeen, Limits

HOLDERS: Final = 10
"""Jobs that are listed as holding units of a limit, at most."""

_remembered = msgspec.json.Decoder(Remembered)


def passed(row: Row, limits: Limits) -> list[int]:
    """The heavy jobs that others pass, as claims remember, in the pools in which this job counts."""
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
    """Whether claims come to the other job first, or may."""
    return other.phase == states.READY and (_take_turns(other, row, rules) or _place(other) < _place(row))


def _take_turns(other: Row, row: Row, rules: Rules) -> bool:
    """Whether the lanes of the two jobs take turns: each engine knows for itself which lane is next."""
    return rules.lanes == "fair" and other.lane != row.lane


def _place(row: Row) -> tuple[str, int]:
    return row.rank, row.id


def _behind(heavy: Row, row: Row, rules: Rules, subject: str) -> str:
    turns = ", unless the turn comes to its own lane first" if _take_turns(heavy, row, rules) else ""
    needs = f"enough others have, and that one needs {units_text(heavy.throttle_factor)} of {subject}"
    return f"it may not pass job {heavy.id} any more{turns}: {needs}"
