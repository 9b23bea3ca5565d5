"""What each entry of a job's history is called in its time line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from hipq.dashboard.sent_headers import Headers
from hipq.job.event_names import LEFT_OUT, RAN, SENT, UNREADABLE, JobEvent
from hipq.job.fault import FaultKind


class Said(NamedTuple):
    """What an entry does not say itself."""

    attempt: int = 0
    """The attempt that it belongs to; 0 = nobody can tell."""
    engines: Mapping[int, str] = {}
    before: str = ""
    """The error of the entry before it."""
    headers: Callable[[int], Headers] = lambda _attempt: ()
    """The headers of the declared request of the job's type in an attempt."""


class Happening(NamedTuple):
    icon: str
    tone: str
    text: str
    detail: str = ""
    until: int = 0
    when: str = ""
    is_outside: bool = False
    printed: str = ""
    headers: Headers = ()


_Entry = Mapping[str, Any]


def happened(entry: _Entry, said: Said) -> Happening:
    known = _HAPPENINGS.get(entry["event"])
    if known is None:  # of a newer program
        more = ", ".join(f"{name} {value}" for name, value in entry.items() if name not in ("at", "event"))
        return Happening("note", "scheduled", str(entry["event"]).capitalize(), more)
    if isinstance(known, Happening):
        error = str(entry.get("error", ""))
        return known._replace(detail="" if error == said.before else error) if error else known
    return known(entry, said)


def _claimed(entry: _Entry, said: Said) -> Happening:
    engine, label = entry.get("by"), said.engines.get(entry.get("by", 0), "")
    text = f"Claimed by engine {engine}" + (f" ({label})" if label else "")
    return Happening("running", "running", f"{text}, attempt {said.attempt}" if said.attempt else text)


def _waits(entry: _Entry, _said: Said) -> Happening:
    keys = f"its answer may name the key {entry['key']}, too" if entry.get("key") else ""
    return Happening("waiting", "waiting", "Waits for its answer", keys)


def _sent(entry: _Entry, said: Said) -> Happening:
    headers = said.headers(said.attempt)
    return Happening("sent", "waiting", f"Request sent: {entry.get('to', '')}", is_outside=True, headers=headers)


def _error(entry: _Entry, said: Said) -> Happening:
    attempt = f"Attempt {said.attempt}" if said.attempt else "The attempt"
    text = f"{attempt} timed out" if entry.get("kind") == FaultKind.TIMEOUT else f"{attempt} failed"
    return Happening("error", "error", text, str(entry.get("error", "")))


def _again(entry: _Entry, said: Said) -> Happening:
    error = str(entry.get("error", ""))
    text = "To be tried again"
    if entry.get("kind") == FaultKind.RETRY and error != said.before:
        text = "Its handler asked to be called again"
    detail = "" if error == said.before else error
    return Happening("retrying", "retrying", text, detail, entry.get("scheduled", 0), "at")


def _changed(entry: _Entry, _said: Said) -> Happening:
    text = f"Given the priority {entry['priority']}" if "priority" in entry else "Given another time"
    return Happening("note", "scheduled", text, "", entry.get("scheduled", 0), "to start at")


def _window_closed(entry: _Entry, _said: Said) -> Happening:
    at = entry.get("scheduled", 0)
    return Happening("held back", "held-back", "Its window closed before it could start", "", at, "which opens at")


def _deferred(entry: _Entry, _said: Said) -> Happening:
    return Happening("held back", "held-back", "Put off by its queue's throttler", "", entry.get("scheduled", 0), "to")


def _ran(entry: _Entry, _said: Said) -> Happening:
    found = [
        f"{entry['cost']:g}s of processor time" if isinstance(entry.get("cost"), int | float) else "",
        f"handler {entry['version']}" if "version" in entry else "",
    ]
    printed = str(entry.get("log", ""))
    return Happening("note", "scheduled", "Has run in its context", ", ".join(filter(None, found)), printed=printed)


def _left_out(entry: _Entry, _said: Said) -> Happening:
    count = entry.get("count", 0)
    return Happening("note", "scheduled", f"{count:,} more things happened, which are left out")


def _unreadable(entry: _Entry, _said: Said) -> Happening:
    count = entry["count"]
    what = "1 entry" if count == 1 else f"{count:,} entries"
    return Happening("error", "error", "Another program has written into its history", f"{what} cannot be read")


_HAPPENINGS: Final[Mapping[str, Happening | Callable[[_Entry, Said], Happening]]] = {
    JobEvent.CLAIMED: _claimed,
    JobEvent.WAITS: _waits,
    JobEvent.ERROR: _error,
    JobEvent.AGAIN: _again,
    JobEvent.CHANGED: _changed,
    JobEvent.WINDOW_CLOSED: _window_closed,
    JobEvent.DEFERRED: _deferred,
    SENT: _sent,
    RAN: _ran,
    LEFT_OUT: _left_out,
    UNREADABLE: _unreadable,
    JobEvent.ANSWERED: Happening("answered", "answered", "Given its answer"),
    JobEvent.PROGRESS: Happening("waiting", "waiting", "Looked at its answer, and waits for the next"),
    JobEvent.ANSWER_FAILED: Happening("error", "error", "Its answer handler failed, and is called again"),
    JobEvent.OK: Happening("ok", "ok", "Ended: ok"),
    JobEvent.FAILED: Happening("failed", "failed", "Ended: failed, as its code said"),
    JobEvent.GAVE_UP: Happening("failed", "failed", "Not tried again: ended with its error"),
    JobEvent.LIFETIME_OVER: Happening("failed", "failed", "Its lifetime is over: ended with its error"),
    JobEvent.TIMED_OUT: Happening("late", "late", "No answer came in time, and its wait says what that means"),
    JobEvent.GIVEN_BACK: Happening("retrying", "retrying", "Given back to its queue"),
    JobEvent.RESCUED: Happening("retrying", "retrying", "Rescued: its engine is gone"),
    JobEvent.CRASHED: Happening("error", "error", "Its process crashed"),
    JobEvent.CANCELLED: Happening("cancelled", "cancelled", "Cancelled"),
    JobEvent.REJECTED: Happening("failed", "failed", "Ended: refused by its queue's throttler"),
    JobEvent.HURRIED: Happening("note", "ready", "Told to run now"),
    JobEvent.CANCELLING: Happening("cancelling", "cancelling", "To be called off: its cancel handler is called"),
    JobEvent.CANCEL_HANDLER_ENDED: Happening("cancelling", "cancelling", "Its cancel handler has called the work off"),
    JobEvent.CANCEL_HANDLER_FAILED: Happening("error", "error", "Its cancel handler failed"),
}
"""By the name of the event. Where a function is missing, the entry's error is all that it says."""
