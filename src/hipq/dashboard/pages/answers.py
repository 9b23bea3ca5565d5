"""The inbox: answers that no job has used, the streams that answers come on, the requests that are outstanding."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hipq.answers.reports import as_rows, streams
from hipq.dashboard import bodies
from hipq.dashboard.visit import PageRoute, Refused, Reply, Role, Visit, redirect
from hipq.errors import Conflict
from hipq.job import names
from hipq.job.answer import (
    BUFFERED,
    CONFLICT,
    DUPLICATE,
    LATE,
    MATCHED,
    NEW,
    REPLAYABLE,
    STATES,
    UNREADABLE,
    Answered,
    Kept,
)
from hipq.job.when import LATEST
from hipq.queue import Queue
from hipq.requests.declared import Request
from hipq.stores.filters import AnswerFilter

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

PAGE: Final = 50
QUEUES: Final = 20
"""The most queues that are looked at when none is named: those with the lowest numbers."""
COUNTED: Final = 1000
"""Where counting stops: answers of a state, and jobs of a queue that wait."""
LOOKED: Final = 2000
"""The newest answers of each queue and state that are looked at for those of one job type."""
SHOWN: Final = (BUFFERED, LATE, CONFLICT, UNREADABLE, NEW, DUPLICATE)
_SAID: Final = {
    "replayed": "It was delivered anew, and is {number} now: {outcome}.",
    "dropped": "Answer {number} was deleted.",
}


class Listed(NamedTuple):
    """An answer in a list."""

    queue: str
    answer: Kept


class Outstanding(NamedTuple):
    """The requests of one queue that wait for their answers."""

    queue: str
    waiting: int
    next_timeout: int
    targets: list[tuple[str, str]]
    """The job types that send declared requests, and where to."""


def page(site: Site, visit: Visit) -> Reply:
    state = _state(visit)
    queues = _queues(site, visit)
    wanted = AnswerFilter(
        job_type=_checked(visit, "type"), job_key=_checked(visit, "key"), job=_number(visit, "job"), newest=True,
        after=_number(visit, "before"), limit=PAGE + 1,
    )  # fmt: skip
    states = list(STATES) if wanted.job else list(SHOWN)  # of one job, those that it has used, too
    with_key = wanted.job_key and not visit.asked("queue")  # an index has these of all queues
    found = _found(site, site.queues if with_key else queues, wanted, [state] if state else states)
    return site.render(
        "answers.html", visit, now=site.store.now(), state=state, found=found[:PAGE], counted=COUNTED,
        before=found[PAGE - 1].answer.id if len(found) > PAGE else 0, counts=_counts(site, queues), states=SHOWN,
        meanings=STATES, outstanding=_outstanding(site, queues), listeners=_listeners(site),
        more_queues=0 if visit.asked("queue") else len(site.queues) - len(queues), outcomes=list(Answered),
        done=_done(visit), looked=LOOKED if wanted.job_type and not (wanted.job_key or wanted.job) else 0,
    )  # fmt: skip


def one(site: Site, visit: Visit) -> Reply:
    name, queue, kept = _answer(site, visit)
    return site.render(
        "answer.html", visit, now=site.store.now(), queue=name, answer=kept, meaning=STATES[kept.state],
        types=sorted(one.name for one in queue.job_types), may_replay=kept.state in REPLAYABLE,
        may_drop=kept.state != MATCHED, done=_done(visit),
        body=bodies.shown(kept.data, site.mask, of_daemon=bool(kept.tenant)),
    )  # fmt: skip


# -- changing ---------------------------------------------------------------------------------------------------------
def replay(site: Site, visit: Visit) -> Reply:
    _, queue, kept = _answer(site, visit)
    key, job_type = visit.sent("key"), visit.sent("type")
    inbox = queue.app.answers
    if key or job_type:
        done = inbox.rekey(kept.id, key or kept.job_key, type=job_type or None)
    else:
        done = inbox.replay(kept.id)
    return redirect(
        visit.link(f"/answers/{done.id}", done="replayed", number=done.id, outcome=str(done.outcome)),
        {"outcome": str(done.outcome), "number": done.id},
    )


def drop(site: Site, visit: Visit) -> Reply:
    _, queue, kept = _answer(site, visit)
    queue.app.answers.drop(kept.id)
    return redirect(visit.link("/answers", done="dropped", number=kept.id))


def drop_some(site: Site, visit: Visit) -> Reply:
    """Those that are checked in the list."""
    kept_back, dropped = 0, list[int]()
    for number in visit.form.get("answer", ())[:PAGE]:
        _, queue, kept = _answer(site, visit._replace(params={"number": number}))
        try:
            queue.app.answers.drop(kept.id)
            dropped.append(kept.id)
        except Conflict:
            kept_back += 1
    where = visit.link("/answers", state=visit.sent("state"), queue=visit.sent("queue"), kept=kept_back or "")
    return redirect(where, {"answers": dropped})


# -- what a visit asks for --------------------------------------------------------------------------------------------
def _state(visit: Visit) -> str:
    state = visit.asked("state")
    if state and state not in SHOWN:
        raise Refused(400, f"answers are listed by one of {', '.join(SHOWN)}")
    return state


def _checked(visit: Visit, name: str) -> str:
    text = visit.asked(name)
    check = {"type": names.job_type, "key": names.key}[name]
    return check(text) if text else ""


def _number(visit: Visit, name: str) -> int:
    text = visit.asked(name)
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < 1 << 63):
        raise Refused(400, f"{name} is the number of an answer")
    return int(text)


def _queues(site: Site, visit: Visit) -> dict[str, Queue]:
    name = visit.asked("queue")
    if name:
        return {name: site.queue(name)}
    first = sorted(site.queues.items(), key=lambda pair: pair[1].number)[:QUEUES]
    return dict(first)


def _answer(site: Site, visit: Visit) -> tuple[str, Queue, Kept]:
    text = visit.params["number"]
    if text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < 1 << 63:
        for kept in site.store.answers(AnswerFilter(id=int(text))):
            for name, queue in site.queues.items():
                if queue.number == kept.queue:
                    return name, queue, kept
    raise Refused(404, f"there is no answer {text:.20}")


def _done(visit: Visit) -> str:
    """What was just done, in a sentence of the page's own."""
    sentence, outcome = _SAID.get(visit.asked("done"), ""), visit.asked("outcome")
    if visit.asked("kept"):
        return "Some were left: a job has them, and has not looked at them yet."
    if not sentence or (outcome and outcome not in list(Answered)):
        return ""
    return sentence.format(number=_number(visit, "number"), outcome=outcome)


# -- what is shown ----------------------------------------------------------------------------------------------------
def _found(site: Site, queues: dict[str, Queue], wanted: AnswerFilter, states: list[str]) -> list[Listed]:
    """The newest first. Each state of each queue is read by an index, so that all others cost nothing; and so are
    those with a key, of all queues and states."""
    if wanted.job_key and not wanted.job:
        names = {queue.number: name for name, queue in queues.items()}
        state = states[0] if len(states) == 1 else ""
        kept = site.store.answers(wanted._replace(queues=tuple(names), state=state, unused=True))
        return [Listed(names[one.queue], one) for one in kept]
    wanted = wanted._replace(within=LOOKED if wanted.job_type and not wanted.job else 0)
    lists = [
        [Listed(name, kept) for kept in site.store.answers(wanted._replace(queue=queue.number, state=state))]
        for name, queue in queues.items()
        for state in states
    ]
    merged = heapq.merge(*lists, key=lambda listed: -listed.answer.id)
    return [listed for listed, _ in zip(merged, range(wanted.limit), strict=False)]


def _counts(site: Site, queues: dict[str, Queue]) -> dict[str, int]:
    return dict.fromkeys(SHOWN, 0) | site.store.unused_answers([one.number for one in queues.values()], COUNTED)


def _outstanding(site: Site, queues: dict[str, Queue]) -> list[Outstanding]:
    found = []
    for name, queue in queues.items():
        counts = site.store.counts(queue.number, COUNTED, LATEST, LATEST)
        targets = [(one.name, one.spec.fn.target) for one in queue.job_types if isinstance(one.spec.fn, Request)]
        if counts.waiting or targets:
            found.append(Outstanding(name, counts.waiting, counts.next_timeout, targets))
    return sorted(found, key=lambda one: -one.waiting)


def _listeners(site: Site) -> list[dict[str, Any]]:
    return [row for app in site.apps for row in as_rows(streams(site.store, app.name), list(Answered))]


ROUTES: Final = (
    PageRoute("GET", "/answers", Role.VIEW, page),
    PageRoute("POST", "/answers/drop", Role.OPERATE, drop_some),
    PageRoute("GET", "/answers/{number}", Role.VIEW, one),
    PageRoute("POST", "/answers/{number}/replay", Role.OPERATE, replay),
    PageRoute("POST", "/answers/{number}/drop", Role.OPERATE, drop),
)
