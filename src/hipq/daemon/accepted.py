"""Jobs that were accepted and are not stored yet: which journal may have one, and until when that is so.

Every daemon is asked for every job, wherever it was posted. The id says whose journal has it (see `ids`). How far the
store has that journal is noted with its jobs. What lies beyond may still come: its daemon is asked, by a note, and says
when the store has all that it had acknowledged by then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from hipq.daemon.ids import journal_of
from hipq.job.model import sequence_of
from hipq.stores.notes import note
from hipq.stores.protocols import Store
from hipq.stores.values import JOURNALS

if TYPE_CHECKING:
    from hipq.daemon.ids import JournalIds
    from hipq.journal import Journal, Position

ASKED: Final = "journal asked"
"""The kind of notes that count the questions to a journal's daemon, by its identity."""
ANSWERED: Final = "journal answered"
"""The kind of notes that say which question a journal's daemon has answered last."""
ASK_AFTER: Final = 0.3
"""Seconds after which another daemon is asked: what it has comes within some hundredths, if all is well."""
LOOK: Final = 0.25
"""Seconds between two looks whether somebody asks."""


def place_text(position: object, through: int) -> str:
    """What the store keeps of a journal: how far it has it, and the number below which nothing will come."""
    return f"{position} {through}"


def place_parts(text: str) -> tuple[str, int]:
    position, _, through = text.partition(" ")
    return position, int(through or 0)


class Accepted:
    """For any thread."""

    def __init__(self, store: Store, journal: Journal, ids: JournalIds) -> None:
        self.store, self.journal, self.ids = store, journal, ids

    def question(self, job_id: int) -> Question:
        return Question(self, job_id)

    def is_here(self, tenant: str, job_id: int) -> bool:
        """Whether this daemon's own journal may have this tenant's job, and the store has not: known without asking the
        store."""
        number = sequence_of(job_id)
        return self.ids.is_mine(number) and number >= max(self.ids.through, self.ids.stored.get(tenant, 0))


class Question:
    """Whether a job may still come into the store, which has not got it."""

    def __init__(self, accepted: Accepted, job_id: int) -> None:
        self._accepted = accepted
        self._number = sequence_of(job_id)
        self._last = accepted.journal.last  # what is acknowledged from here on, nobody can have asked for
        self._began = time.monotonic()
        self._owner: str | None = None
        self._asked = 0

    def is_over(self) -> bool:
        """Nothing will come any more: what the store has not got now does not exist. May wait for the store."""
        store, ids, mine = self._accepted.store, self._accepted.ids, self._accepted.journal
        if self._owner is None:
            self._owner = mine.identity if ids.is_mine(self._number) else journal_of(store, self._number)
        if not self._owner:
            return True
        if self._owner == mine.identity:
            return self._number < ids.through or mine.is_taken(self._last)
        if place_parts(note(store, JOURNALS, self._owner))[1] > self._number:
            return True
        return time.monotonic() - self._began >= ASK_AFTER and self._is_answered(store, self._owner)

    def _is_answered(self, store: Store, owner: str) -> bool:
        if not self._asked:
            self._asked = int(store.change_note(ASKED, owner, lambda before: str(int(before or 0) + 1)))
        return int(note(store, ANSWERED, owner) or 0) >= self._asked


class Answering:
    """The other side: tells whoever asks when the store has all that this journal had. For one thread."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self._answered = ""
        self._question: tuple[str, Position] | None = None
        """What was asked, and behind which position its answer is known."""
        self._look_at = 0.0

    def look(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK
        if self._question is None:
            asked = note(self._store, ASKED, self._journal.identity)
            if asked == self._answered:
                return
            self._question = asked, self._journal.last  # whatever was acknowledged before it was asked lies before it
        asked, last = self._question
        if self._journal.is_taken(last):
            self._answered = self._store.change_note(ANSWERED, self._journal.identity, lambda _: asked)
            self._question = None
