"""Events from changes: who listens hears what became of jobs and answers, once it is saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hipq.engine.queue_watch import QueueWatches
from hipq.engine.setup import Setup
from hipq.job.answer import MATCHED, waited
from hipq.job.event_names import JobEvent
from hipq.job.model import Change, Row
from hipq.job.states import CANCELLING, ERROR, FINAL
from hipq.job.transitions import CANCELLED
from hipq.stores.claims import Turned


class Announcer:
    def __init__(self, setup: Setup, watches: QueueWatches) -> None:
        self._events = setup.events
        self._added = setup.added
        self._watches = watches

    def saved(self, changes: Sequence[Change], turned: Turned, now: int) -> None:
        for change in changes:
            for name, row in _events(change, turned):
                if self._events.wanted(name):
                    self._events.emit(name, now, self._watches.name(row), row)
        self._answers(changes, turned, now)
        if turned.children:
            self._added([child for child, _ in turned.children], [stored for _, stored in turned.children])

    def _answers(self, changes: Sequence[Change], turned: Turned, now: int) -> None:
        """Early answers that have found their jobs, and answers that jobs left behind."""
        by_id = {change.before.id: change for change in changes} if turned.placed else {}
        for one in turned.placed:
            row = turned.answered.get(one.job, by_id[one.job].after)
            if self._events.wanted(one.state):
                more = {"waited": waited(by_id[one.job].before, now)} if one.state == MATCHED else {}
                self._events.emit(one.state, now, self._watches.name(row), row, answer=one.id, key=row.job_key, **more)


def _events(change: Change, turned: Turned) -> Iterator[tuple[str, Row]]:
    """The events of one change, with the row as it was saved."""
    name, after = change.event, change.after
    if after.id in turned.lost:
        yield JobEvent.LOST, after
        return
    if after.id in turned.answered:
        after = turned.answered[after.id]
        if change.seeking and change.seeking.state == ERROR:
            name = JobEvent.ERROR  # nothing follows from the error: the job's answer was there
    yield name, after
    if name == JobEvent.TIMED_OUT and after.phase == CANCELLING:
        yield CANCELLING, after
    has_cancelled = name in (JobEvent.CANCEL_HANDLER_ENDED, JobEvent.CANCEL_HANDLER_FAILED)
    if has_cancelled and after.state == FINAL and after.exitcode == CANCELLED:
        yield JobEvent.CANCELLED, after
