"""Ids that are given out before the store has their jobs: in blocks, each reserved in the store for one daemon.

They are above all that the store gives out itself. What is left of a block when a daemon ends is never used: there are
seventy million blocks. Where blocks begin is drawn by chance: a journal that meets another database than the one it
was written for, or an older copy of it, must not bring ids that this one gives out again.

The store has a note of the blocks of each journal, so that every daemon can tell whose journal a job may still be in. A
journal's blocks are used in the order of their numbers, and so are the numbers in them: of what the store has from a
journal the highest number says that nothing lower will come.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from hipq.errors import StoreUnavailable
from hipq.job.model import sequence_of
from hipq.stores.protocols import Store

KIND: Final = "ids"
BLOCKS: Final = "ids of"
"""The kind of notes that say which blocks a journal has, by its identity: where they begin."""
FIRST: Final = 1 << 46
BLOCK: Final = 1_000_000
START: Final = 1 << 24
"""Blocks among which the first of a database is drawn;"""
GAP: Final = 64
"""and those among which each next one is."""
SLICE: Final = 100_000
"""Ids of the spare block that are taken at once while the store is away: so ten starts without it are possible."""

SKIPPED: Final = 10_000

_begins = msgspec.json.Decoder(list[int])


def is_given_out(job_id: int) -> bool:
    """Whether this may be the id of a job that was acknowledged before the store had it."""
    return sequence_of(job_id) >= FIRST


def skip(store: Store) -> None:
    """In a database that is an older copy of itself: leave out what daemons may have reserved since."""
    for queue in store.notes(KIND):
        store.change_note(KIND, queue, lambda before: str(int(before) + SKIPPED * BLOCK))


def begin_of(number: int) -> int:
    """Where the block begins that has this number."""
    return number - (number - FIRST) % BLOCK


def journal_of(store: Store, number: int) -> str:
    """The identity of the journal whose daemon may have given out this number; "" = none has it any more."""
    begin = begin_of(number)
    return next((journal for journal, text in store.notes(BLOCKS).items() if begin in _begins.decode(text)), "")


class Ids:
    def __init__(self, store: Store, queue: int) -> None:
        self._store = store
        self._queue = queue
        self._lock = threading.Lock()
        self._blocks: list[range] = []

    def take(self, count: int) -> int:
        """The first of so many in a row. Any thread; it asks nobody."""
        with self._lock:
            for place, block in enumerate(self._blocks):
                if len(block) >= count:
                    self._blocks[: place + 1] = [block[count:]]  # those before it are too short, and are not used
                    return block.start
        raise StoreUnavailable("the ids that were reserved are used up, and the store is away")

    @property
    def scarce(self) -> bool:
        return sum(len(block) for block in self._blocks) < BLOCK // 2

    def reserve(self) -> None:
        """One more block."""
        self._use(self._reserved())

    def _reserved(self) -> range:
        step = BLOCK * (1 + secrets.randbelow(GAP))
        begin = FIRST + BLOCK * secrets.randbelow(START)
        after = int(self._store.change_note(KIND, str(self._queue), lambda before: str(int(before or begin) + step)))
        return range(after - BLOCK, after)

    def _use(self, block: range) -> None:
        with self._lock:
            self._blocks.append(block)


class JournalIds(Ids):
    """Of jobs that go through a journal. One block is kept in reserve beside it, for when the store is away."""

    def __init__(self, store: Store, queue: int, journal: str, spare: range, keep: Callable[[range], None]) -> None:
        """`keep` writes down what is left in reserve: it is on disk when that returns."""
        super().__init__(store, queue)
        self._journal = journal
        self._spare = spare
        self._keep = keep
        self._mine = {begin_of(spare.start)} if spare else set[int]()
        self.through = 0
        """Of all below this number the store has what it will ever get from this journal."""

    def is_mine(self, number: int) -> bool:
        """Whether it is of a block of this journal's, as far as is known without asking the store."""
        return begin_of(number) in self._mine

    def reserve(self) -> None:
        """The block that was in reserve is used from now on, and another takes its place. While the store is away: a
        part of it."""
        try:
            new = self._reserved()
            spare, new = (self._spare, new) if self._spare else (new, self._reserved())
            self._note(spare, new)
        except StoreUnavailable:
            if not self._spare:
                raise
            spare, new = self._spare[:SLICE], self._spare[SLICE:]
        self._keep(new)  # before anything of it is given out: who dies here must not use it twice
        self._spare = new
        self._use(spare)

    def _note(self, *blocks: range) -> None:
        """Tell all daemons that these are this journal's; and which are not any more, since the store has all of
        them."""

        def change(text: str) -> str:
            known = {*(_begins.decode(text) if text else ()), *(begin_of(block.start) for block in blocks)}
            return msgspec.json.encode(sorted(begin for begin in known if begin + BLOCK > self.through)).decode()

        self._mine = set(_begins.decode(self._store.change_note(BLOCKS, self._journal, change)))
