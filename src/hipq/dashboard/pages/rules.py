"""Limits, pauses and cron schedules: seen, tried and changed; and what opens and ticks in the next day."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.cron import CronSchedule
from hipq.dashboard.day import STEP, Day, day_of
from hipq.dashboard.visit import PageRoute, Refused, Reply, Role, Visit, redirect
from hipq.errors import Invalid
from hipq.job import names
from hipq.job.units import counted, number
from hipq.job.windows import ALWAYS
from hipq.limits.rules import AnyLimit, Rules
from hipq.limits.written import written
from hipq.queue import Queue
from hipq.rules import NewLimits, Trial
from hipq.stores.values import Limits

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

QUEUES: Final = 20
"""The most queues of a page: those with the lowest numbers after the last one of the page before."""
LANES: Final = 12
"""The most lanes of a queue that are shown, the fullest first."""
_DONE: Final = {
    "paused": "Nothing more of it starts. What runs goes on.",
    "resumed": "It goes on.",
    "limited": "Every engine's next claim goes by the new limits.",
    "cron": "The schedule is changed.",
    "removed": "The schedule is removed.",
}

_RECORDED: Final = ("to", "name", "lane", "type", "most", "shares", "rates", "expression", "tz")


class Lane(NamedTuple):
    """What one lane of a queue uses of its limits."""

    name: str
    used: float
    most: float
    """The smallest limit on the lane; 0 = it has none of its own."""


class Ruled(NamedTuple):
    """A queue with its rules, as the page shows them."""

    name: str
    rules: Rules
    used: float
    lanes: list[Lane]
    more_lanes: int
    holders: list[int]
    """Jobs that hold the most, first."""
    throttler_error: str
    crons: list[CronSchedule]


class Tried(NamedTuple):
    """What a trial found for one lane."""

    lane: str
    held: float
    before: int
    after: int


def page(site: Site, visit: Visit) -> Reply:
    after = visit.asked("after")
    queues = sorted(site.queues.items(), key=lambda pair: pair[1].number)
    start = next((place + 1 for place, (name, _) in enumerate(queues) if name == after), 0)
    shown = queues[start : start + QUEUES]
    now = site.store.now()
    ruled = [_ruled(site, name, queue) for name, queue in shown]
    return site.render(
        "rules.html", visit, now=now, queues=ruled, day=_day([queue for _, queue in shown], ruled, now),
        after=shown[-1][0] if len(queues) > start + QUEUES else "", done=_DONE.get(visit.asked("done"), ""),
    )  # fmt: skip


def try_limit(site: Site, visit: Visit) -> Reply:
    """What other limits would do, before they are set."""
    name = visit.params["queue"]
    queue, wanted = site.queue(name), _limits(visit)
    trial = queue.app.rules.try_limit(queue.name, wanted)
    return site.render(
        "trial.html", visit, now=site.store.now(), queue=name, trial=trial, tried=_tried(trial),
        starts=sum(trial.starts_after.values()), starts_before=sum(trial.starts_before.values()),
        held=number(sum(trial.held.values())), fields={key: values[-1] for key, values in visit.query.items()},
    )  # fmt: skip


# -- changing ---------------------------------------------------------------------------------------------------------
def set_limit(site: Site, visit: Visit) -> Reply:
    queue = site.queue(visit.params["queue"])
    queue.app.rules.set_limit(queue.name, _limits(visit))
    return _done(visit, "limited")


def pause(site: Site, visit: Visit) -> Reply:
    queue = site.queue(visit.params["queue"])
    wanted = names.one_of(visit.sent("to"), "state", ("paused", "resumed")) == "paused"
    lane = visit.sent("lane") if "lane" in visit.form else None
    queue.app.rules.set_paused(queue.name, lane, visit.sent("type") or None, wanted)
    return _done(visit, "paused" if wanted else "resumed")


def cron(site: Site, visit: Visit) -> Reply:
    """Pause, resume or run one schedule."""
    queue, name = site.queue(visit.params["queue"]), visit.sent("name")
    match visit.sent("to"):
        case "paused":
            queue.app.cron.pause(queue.name, name)
        case "resumed":
            queue.app.cron.resume(queue.name, name)
        case "now":
            return redirect(visit.link(f"/jobs/{int(queue.app.cron.run_now(queue.name, name))}"), _asked(visit))
        case _:
            raise Refused(400, "a schedule is paused, resumed or run now")
    return _done(visit, "cron")


def change_cron(site: Site, visit: Visit) -> Reply:
    """Give a schedule other times, go back to what the code says, or remove it."""
    queue, name = site.queue(visit.params["queue"]), visit.sent("name")
    match visit.sent("to"):
        case "changed":
            queue.app.cron.change(
                queue.name, name, expression=visit.sent("expression"), tz=visit.sent("tz").strip() or None
            )
        case "reset":
            queue.app.cron.reset(queue.name, name)
        case "removed":
            queue.app.cron.remove(queue.name, name)
            return _done(visit, "removed")
        case _:
            raise Refused(400, "a schedule is changed, reset or removed")
    return _done(visit, "cron")


def _done(visit: Visit, done: str) -> Reply:
    return redirect(visit.link("/rules", done=done), _asked(visit))


def _asked(visit: Visit) -> dict[str, object]:
    """What the form said, for the audit log."""
    return {name: values[-1] for name, values in visit.form.items() if name in _RECORDED and values}


# -- what a visit asks for --------------------------------------------------------------------------------------------
def _limits(visit: Visit) -> NewLimits:
    """The limits that a form has: of the query where they are tried, else of what was sent."""
    field = visit.asked if visit.method == "GET" else visit.sent
    match field("to"):
        case "code":
            return None
        case "none":
            return "none"
    rates = [text for text in field("rates").split(",") if text.strip()]
    most = _units(field("most"), "the limit")
    given = written(most, _units(field("lane"), "per lane"), field("shares") or None, None, rates)
    if not given and most is None:
        raise Invalid("say a limit: a number for the whole queue, per lane, shares or rates")
    return given or most


def _units(text: str, what: str) -> float | None:
    if not text.strip():
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise Invalid(f"{what} must be a number of units, not {text!r:.40}")
    return found


# -- what is shown ----------------------------------------------------------------------------------------------------
def _ruled(site: Site, name: str, queue: Queue) -> Ruled:
    limits = site.store.limits(queue.number)
    lanes = sorted(_lanes(limits), key=lambda lane: (-lane.used / (lane.most or math.inf), -lane.used, lane.name))
    return Ruled(
        name, limits.rules, float(number(sum(limits.held.values()))), lanes[:LANES], max(len(lanes) - LANES, 0),
        [one.id for one in limits.holders[:5]], site.shown(limits.note) if limits.rules.throttled else "",
        queue.app.cron.list(queue.name),
    )  # fmt: skip


def _lanes(limits: Limits) -> list[Lane]:
    """The lanes that hold units, and those that a limit names."""
    rules = limits.rules
    found = {*limits.held, *(lane for one in rules.in_force for lane in one.lanes)}
    if found == {""}:
        return []
    return [Lane(lane, float(number(limits.held.get(lane, 0))), _most(rules, lane)) for lane in found]


def _most(rules: Rules, lane: str) -> float:
    own: list[AnyLimit] = [one for one in rules.by_pool(lane).values() if not one.of_whole_queue]
    return float(number(min(one.cap(lane, counted(rules.most)) for one in own))) if own else 0.0


def _tried(trial: Trial) -> list[Tried]:
    lanes = sorted({*trial.starts_before, *trial.starts_after, *trial.held})
    found = [
        Tried(
            lane, float(number(trial.held.get(lane, 0))), trial.starts_before.get(lane, 0),
            trial.starts_after.get(lane, 0),
        )
        for lane in lanes
    ]  # fmt: skip
    return sorted(found, key=lambda one: -abs(one.after - one.before))[:50]


def _day(queues: list[Queue], ruled: list[Ruled], now: int) -> Day:
    windows = [
        (f"{one.name}.{each.name}", each.spec.windows)
        for one, queue in zip(ruled, queues, strict=True)
        for each in queue.job_types
        if each.spec.windows != ALWAYS
    ]
    crons = [(f"{one.name}.{each.name}", each.expression, each.tz) for one in ruled for each in one.crons if each.next]
    return day_of(tuple(sorted(windows)), tuple(sorted(crons)), now - now % STEP)


ROUTES: Final = (
    PageRoute("GET", "/rules", Role.VIEW, page),
    PageRoute("GET", "/rules/{queue}/try", Role.VIEW, try_limit),
    PageRoute("POST", "/rules/{queue}/limit", Role.ADMIN, set_limit),
    PageRoute("POST", "/rules/{queue}/pause", Role.OPERATE, pause),
    PageRoute("POST", "/rules/{queue}/cron", Role.OPERATE, cron),
    PageRoute("POST", "/rules/{queue}/cron/change", Role.ADMIN, change_cron),
)
