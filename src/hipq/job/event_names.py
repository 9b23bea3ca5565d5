"""The names of all events, spelled once. The history of a job has the same names as the events that were announced.

Plain strings and not an enum: each job writes several of them, and formatting a member costs as much as all the rest of
a history entry.
"""

from __future__ import annotations

from typing import Final


class JobEvent:
    """What happens to a job."""

    ADDED: Final = "added"
    STAGED: Final = "staged"
    CLAIMED: Final = "claimed"
    OK: Final = "ok"
    FAILED: Final = "failed"
    ERROR: Final = "error"
    GAVE_UP: Final = "gave up"
    AGAIN: Final = "again"
    WAITS: Final = "waits"
    TIMED_OUT: Final = "timed out"
    GIVEN_BACK: Final = "given back"
    RESCUED: Final = "rescued"
    CRASHED: Final = "crashed"
    LIFETIME_OVER: Final = "lifetime over"
    CANCELLED: Final = "cancelled"
    TOLD_TO_STOP: Final = "told to stop"
    HURRIED: Final = "hurried"
    CHANGED: Final = "changed"
    LOST: Final = "lost"
    UNSTORABLE: Final = "unstorable"
    PRUNED: Final = "pruned"
    WINDOW_CLOSED: Final = "window closed"
    DEFERRED: Final = "deferred"
    REJECTED: Final = "rejected"
    PARKED: Final = "parked"
    ANSWERED: Final = "answered"
    PROGRESS: Final = "progress"
    REPORTED: Final = "progress reported"
    ANSWER_FAILED: Final = "answer failed"
    CANCELLING: Final = "cancelling"
    CANCEL_HANDLER_ENDED: Final = "cancel handler ended"
    CANCEL_HANDLER_FAILED: Final = "cancel handler failed"


class InboxEvent:
    """What happens to answers in the inbox. What became of an answer that arrived is an event, too: `Answered`."""

    ANSWER_DROPPED: Final = "answer dropped"
    ANSWERS_PRUNED: Final = "answers pruned"


class ListenerEvent:
    """What happens to a listener, which receives answers. `details` has the `listener` and, when it is down or a
    webhook is refused, the `error`. A report comes about every second in which something arrived. It counts the answers
    of each kind since the last report, and has the `lag`, if that is known."""

    STARTED: Final = "listener started"
    STOPPED: Final = "listener stopped"
    DOWN: Final = "listener down"
    BACK: Final = "listener back"
    REPORT: Final = "listener report"
    WEBHOOK_REFUSED: Final = "webhook refused"


class EngineEvent:
    """What happens to an engine, its store, its schedules and its throttlers."""

    STARTED: Final = "engine started"
    STOPPING: Final = "engine stopping"
    STOPPED: Final = "engine stopped"
    LEASE_LOST: Final = "lease lost"
    STORE_DOWN: Final = "store down"
    STORE_BACK: Final = "store back"
    QUEUE_LOCKED: Final = "queue locked"
    QUEUE_FREE: Final = "queue free"
    HANDLER_STUCK: Final = "handler stuck"
    SCHEDULE_CHANGED: Final = "schedule changed"
    TICK: Final = "tick"
    TICK_SKIPPED: Final = "tick skipped"
    TICK_FAILED: Final = "tick failed"
    THROTTLER_SLOW: Final = "throttler slow"
    THROTTLER_FAILED: Final = "throttler failed"
    RULES_CHANGED: Final = "rules changed"
    CLOCK_SET_BACK: Final = "clock set back"


RAN: Final = "ran"
"""An entry of histories that is not announced: what a run has cost."""
SENT: Final = "sent"
"""An entry of histories that is not announced: a request was sent, and where to."""
LEFT_OUT: Final = "left out"
"""An entry of histories that is not announced: how many entries were left out, in a history that became too long."""
UNREADABLE: Final = "unreadable"
"""An entry that no history has: how many of its entries cannot be read, since another program wrote them."""


def names_in(names: type) -> tuple[str, ...]:
    """The names in a class of constants, in their order."""
    return tuple(text for constant, text in vars(names).items() if constant.isupper())
