"""The conversation of a job with the service outside, as one time line: what happened to it, the answers that came for
it, and what is to happen next. Pure: the page reads the job and its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hipq.dashboard.happenings import Said, happened
from hipq.dashboard.sent_headers import Headers
from hipq.job import meta, waiting
from hipq.job.answer import (
    APPLIED,
    BUFFERED,
    CONFLICT,
    DUPLICATE,
    LATE,
    MATCHED,
    NEW,
    PROGRESS,
    SETTLED,
    UNREADABLE,
    Kept,
)
from hipq.job.event_names import LEFT_OUT, JobEvent
from hipq.job.fault import Fault
from hipq.job.history import entries_of
from hipq.job.model import Row
from hipq.job.progress import Reported, in_words
from hipq.job.states import EXECUTING, FINAL, NONE, RETRY, SCHEDULED, WAITING

_USED: Final = (MATCHED, PROGRESS, APPLIED, SETTLED)
"""The states of answers that the job was given."""
_FATE: Final = {
    NEW: ("came", "waiting", "came", "no engine has looked at it yet"),
    BUFFERED: ("came", "waiting", "came", "it is kept until the job wants it"),
    MATCHED: ("came", "answered", "came", "the job has it, and is about to look at it"),
    PROGRESS: ("came", "answered", "came", "the job looked at it, and went on waiting"),
    APPLIED: ("came", "answered", "came", "the job looked at it, and was to be tried again"),
    SETTLED: ("came", "ok", "came", "the job ended with it"),
    DUPLICATE: ("came", "cancelled", "is a duplicate", "the job had the same one already"),
    CONFLICT: ("error", "failed", "conflicts", "the job had ended with another one"),
    LATE: ("late", "late", "came late", "the job did not want it any more"),
    UNREADABLE: ("error", "failed", "cannot be read", ""),
}
"""What is said of an answer in each state: its icon, its tone, what it did, and what became of it."""


class Entry(NamedTuple):
    """One thing that happened, or that is to happen."""

    at: int
    icon: str
    tone: str
    """A state (`is-...` in the style sheet), whose colour it has."""
    text: str
    detail: str = ""
    until: int = 0
    """A moment that it is about, behind the word `when`."""
    when: str = ""
    traceback: str = ""
    printed: str = ""
    """What its handler printed."""
    headers: Headers = ()
    answer: Kept | None = None
    is_outside: bool = False
    """Whether it happened in the world outside: a request that went there, an answer that came from there."""
    is_ahead: bool = False
    """It has not happened yet."""
    event: str = ""
    """What the history calls it."""


class Scene(NamedTuple):
    """A job, and what there is about it beside its row."""

    row: Row
    now: int = 0
    answers: Sequence[Kept] = ()
    engines: Mapping[int, str] = {}
    """The labels of those that are alive."""
    progress: Reported | None = None
    headers: Callable[[int], Headers] = lambda _attempt: ()
    """The headers of its declared request in an attempt, if its code is here."""


def conversation(scene: Scene) -> list[Entry]:
    row, history = scene.row, entries_of(scene.row.history)
    entries = _with_answers(row, [_added(row, history), *_told(scene, history)], scene.answers)
    if scene.progress and scene.progress.at:
        said = in_words(scene.progress.fraction, scene.progress.message)
        _insert(entries, Entry(scene.progress.at, "running", "running", "Its handler said how far it is", said))
    return [*entries, *_ahead(row, scene.now)]


# -- inside ----------------------------------------------------------------------------------------------------------
def _added(row: Row, history: Sequence[Mapping[str, Any]]) -> Entry:
    found = meta.to_show(row.meta)
    text = (
        f"Added by job {found.parent}" if found.parent else f"Added by tenant {row.tenant}" if row.tenant else "Added"
    )
    if row.job_key != str(row.id):
        text += f", with the key {row.job_key}"
    trace = meta.traceparent_in(row.meta)
    detail = f"in trace {trace.split('-')[1]}" if trace else ""
    if found.then:
        detail = f"{detail}; " if detail else ""
        detail += f"a job of type {found.then} is to follow it"
    moved = any("scheduled" in entry or entry["event"] == JobEvent.HURRIED for entry in history)
    planned = 0 if moved or row.scheduled_run_time <= row.create_time else row.scheduled_run_time
    return Entry(row.create_time, "added", "ready", text, detail, planned, "to start at" if planned else "")


def _told(scene: Scene, history: Sequence[Mapping[str, Any]]) -> Iterator[Entry]:
    """The history in sentences. The traceback stands where its error happened: the row keeps that of the last one."""
    row, before, attempts = scene.row, "", _attempts(scene.row, history)
    last = max((index for index, entry in enumerate(history) if "error" in entry), default=-1)
    if last > 0 and history[last - 1].get("error") == history[last]["error"]:
        last -= 1  # an error, and what was decided about it
    traceback = "" if row.error == NONE else Fault.load(row.error).traceback
    for index, entry in enumerate(history):
        said = happened(entry, Said(attempts[index], scene.engines, before, scene.headers))
        before = entry.get("error", "")
        yield Entry(
            entry["at"], said.icon, said.tone, said.text, said.detail, said.until, said.when,
            traceback if index == last else "", said.printed, said.headers, is_outside=said.is_outside,
            event=entry["event"],
        )  # fmt: skip


def _attempts(row: Row, history: Sequence[Mapping[str, Any]]) -> list[int]:
    """The attempt that each entry belongs to, counted from both ends: 0 = nobody can tell, because entries are left out
    or a job that was given back may not have started."""
    found, events = [0] * len(history), [entry["event"] for entry in history]
    breaks = [index for index, event in enumerate(events) if event in (LEFT_OUT, JobEvent.GIVEN_BACK)]
    first, last = (breaks[0], breaks[-1]) if breaks else (len(events), -1)
    attempt = row.attempt
    for index in range(len(events) - 1, last, -1):
        found[index] = attempt
        attempt -= events[index] == JobEvent.CLAIMED
    attempt = 0
    for index in range(first):
        attempt += events[index] == JobEvent.CLAIMED
        found[index] = attempt
    return found


def _ahead(row: Row, now: int) -> Iterator[Entry]:
    """What comes next, if that is known; or what should have come, and no engine has seen to it."""
    if row.phase == SCHEDULED:
        text = "Is tried again" if row.state == RETRY else "May start"
        late = "Was to be tried again" if row.state == RETRY else "Was to start"
        at = row.scheduled_run_time
        yield Entry(at, "scheduled", "scheduled", late if at <= now else text, is_ahead=True)
    elif row.phase == EXECUTING and row.deadline:
        text = "Its time was over" if row.deadline <= now else "Unless it has ended, it times out"
        yield Entry(row.deadline, "scheduled", "scheduled", text, is_ahead=True)
    elif row.phase == WAITING:
        wait = waiting.to_show(row.wait)
        text = "Its answer handler is called again" if wait.tries else "Without its answer, it times out"
        if wait.heartbeat and row.deadline < wait.until:
            text = "Without a sign of life, it times out"
        late = "Its time was over" if row.deadline <= now else text
        yield Entry(row.deadline, "waiting", "waiting", late, is_ahead=True)


# -- outside ---------------------------------------------------------------------------------------------------------
def _with_answers(row: Row, told: Sequence[Entry], answers: Sequence[Kept]) -> list[Entry]:
    """Each answer where it fell. What was handed to the job at once is one entry, and what was kept for it two."""
    entries = list(told)
    given = [entry for entry in told if entry.event == JobEvent.ANSWERED]
    used = [one for one in answers if one.state in _USED]
    handed = dict(zip((one.id for one in used), given, strict=False)) if len(used) == len(given) else {}
    for one in answers:
        moment = handed.get(one.id)
        _insert(entries, _answer(row, one), moment if moment and one.arrived >= moment.at else None)
        if moment is None:
            continue
        place = next(index for index, entry in enumerate(entries) if entry is moment)
        if entries[place - 1].answer is one:
            del entries[place]
        else:
            entries[place] = moment._replace(text=f"Given answer {one.id}, which was kept for it")
            early = next(index for index, entry in enumerate(entries) if entry.answer is one)
            entries[early] = entries[early]._replace(text=f"Answer {one.id} came early")
    return entries


def _insert(entries: list[Entry], entry: Entry, before: Entry | None = None) -> None:
    """Put it where its time is: behind what happened at the same moment, or right in front of one entry."""
    place = len(entries)
    if before is not None:
        place = next(index for index, one in enumerate(entries) if one is before)
    while before is None and place and entries[place - 1].at > entry.at:
        place -= 1
    entries.insert(place, entry)


def _answer(row: Row, one: Kept) -> Entry:
    late = one.state == BUFFERED and row.state == FINAL and one.job == row.id  # the inbox is told so a little later
    icon, tone, did, became = _FATE.get(LATE if late else one.state, ("came", "waiting", "came", one.state))
    if one.state == UNREADABLE:
        became = one.note
    elif one.note:
        became = f"{became}: {one.note}" if one.state != LATE else one.note
    more = [
        "it says that the work failed" if one.error else "",
        f"it came {one.copies} times in all" if one.copies > 1 else "",
        f"it is for attempt {one.attempt}" if one.attempt and not one.note else "",
        f"its sender calls it {one.answer_id}" if one.answer_id else "",
    ]
    detail = "; ".join(filter(None, [became, *more]))
    return Entry(one.arrived, icon, tone, f"Answer {one.id} {did}", detail, answer=one, is_outside=True)
