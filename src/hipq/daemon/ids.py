"""Ids that are given out before the store has their jobs: in blocks, each reserved in the store for one daemon.

They are above all that the store gives out itself. What is left of a block when a daemon ends is never used: there are
seventy million blocks. Where blocks begin is drawn by chance: a journal that meets another database than the one it
was written for, or an older copy of it, must not bring ids that this one gives out again.

A tenant is shown its ids, and they must not tell it how many jobs others add. So each tenant takes short runs of
numbers out of a block. Where its next run lies depends on its own last run and on chance. A tenant's numbers grow.

The store has a note of the blocks of each journal, so that every daemon can tell whose journal a job may still be in. A
journal's blocks are used one after the other: once the store has a job of one block, nothing of an earlier block will
come.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from hipq.daemon.known import Known
from hipq.errors import StoreUnavailable
from hipq.job.model import numbered, sequence_of
from hipq.stores.protocols import Store

KIND: Final = "ids"
BLOCKS: Final = "ids of"
"""The kind of notes that say which blocks a journal has, by its identity: where they begin."""
FIRST: Final = 1 << 46
BLOCK: Final = 1_000_000
START: Final = 1 << 24
"""Blocks among which the first block of a database is drawn."""
GAP: Final = 64
"""Blocks among which each next block is drawn."""
SLICE: Final = 160_000
"""Ids of the spare block that are taken at once while the store is away: six starts without the store are possible."""
RUN: Final = 64
"""Numbers in a run, which is what a tenant takes at a time; a request for more takes several runs in a row."""
FIRST_RUNS: Final = 1 << 12
"""Runs among which a tenant's first run in a block is drawn, though never beyond an eighth of the block."""
NEXT_RUNS: Final = 2
"""Free runs among which a tenant's next run is drawn."""

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


class Block:
    """Numbers of which each tenant takes runs, at places that do not tell how many runs others have taken."""

    def __init__(self, numbers: range) -> None:
        self._first = numbers.start
        self._taken = bytearray(len(numbers) // RUN)
        """One byte a run: 1 = somebody has it."""
        self._ends: dict[str, int] = {}
        """The run behind the last one of each tenant."""
        self.left = len(self._taken) * RUN
        """Numbers behind the last run that anybody has."""

    def run(self, tenant: str, count: int) -> range | None:
        """At least `count` numbers in a row, above all that this tenant has; None if there are none left."""
        length = max(-(-count // RUN), 1)
        end = self._ends.get(tenant)
        if end is None:
            end, drawn = 0, secrets.randbelow(max(min(FIRST_RUNS, len(self._taken) // 8), 1))
        else:
            drawn = end + secrets.randbelow(NEXT_RUNS)
        found = (self._taken.find(bytes(length), start) for start in (drawn, end))
        place = next((one for one in found if one >= 0), -1)
        if place < 0:
            return None
        self._ends[tenant] = end = place + length
        self._taken[place:end] = b"\1" * length
        self.left = min(self.left, (len(self._taken) - end) * RUN)
        return range(self._first + place * RUN, self._first + end * RUN)


class Ids:
    def __init__(self, store: Store, queue: int) -> None:
        self._store = store
        self.queue = queue
        self._lock = threading.Lock()
        self._blocks: list[Block] = []
        self._runs: dict[str, range] = {}
        """What is left of the last run of each tenant, in the first block."""

    def take(self, tenant: str, count: int) -> int:
        """The first of `count` numbers in a row, above all that this tenant was given. Any thread; asks nobody."""
        with self._lock:
            run = self._runs.get(tenant)
            if run is None or len(run) < count:
                run = self._next_run(tenant, count)
            self._runs[tenant] = run[count:]
            return run.start

    def for_store(self, tenant: str, count: int) -> list[int]:
        """Ids of jobs that go to the store at once; 0 = none is left, and the store gives the job one."""
        try:
            first = self.take(tenant, count)
        except StoreUnavailable:
            return [0] * count
        return [numbered(number, self.queue) for number in range(first, first + count)]

    def _next_run(self, tenant: str, count: int) -> range:
        for place, block in enumerate(self._blocks):
            if run := block.run(tenant, count):
                if place:
                    del self._blocks[:place]
                    self._runs.clear()  # nobody goes on in an earlier block
                return run
        raise StoreUnavailable("the ids that were reserved are used up, and the store is away")

    @property
    def scarce(self) -> bool:
        return sum(block.left for block in self._blocks) < BLOCK // 2

    def reserve(self) -> None:
        """One more block."""
        self._use(self._reserved())

    def _reserved(self) -> range:
        step = BLOCK * (1 + secrets.randbelow(GAP))
        begin = FIRST + BLOCK * secrets.randbelow(START)
        after = int(self._store.change_note(KIND, str(self.queue), lambda before: str(int(before or begin) + step)))
        return range(after - BLOCK, after)

    def _use(self, block: range) -> None:
        with self._lock:
            self._blocks.append(Block(block))


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
        """The number below which nothing will come from this journal that the store has not got."""
        self.stored: dict[str, int] = {}
        """For each tenant the number below which the store has all of its jobs from this journal."""

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

    def all_stored(self) -> None:
        """Tell all daemons that this journal has no job that the store has not got, and that its daemon ends."""
        if self._spare:
            self.through = max(self.through, begin_of(self._spare.start))
            self._note()

    def _note(self, *blocks: range) -> None:
        """Tell all daemons that these blocks are this journal's; and which are not any more, since the store has all
        of them."""

        def change(text: str) -> str:
            known = {*(_begins.decode(text) if text else ()), *(begin_of(block.start) for block in blocks)}
            return msgspec.json.encode(sorted(begin for begin in known if begin + BLOCK > self.through)).decode()

        self._mine = set(_begins.decode(self._store.change_note(BLOCKS, self._journal, change)))


def journal_ids(store: Store, queue: int, journal: str, known: Known) -> JournalIds:
    """With what was in reserve when this journal was used last, and a note of what is left of it."""
    return JournalIds(
        store, queue, journal, range(*known.facts.ids), lambda spare: known.keep(ids=(spare.start, spare.stop))
    )
