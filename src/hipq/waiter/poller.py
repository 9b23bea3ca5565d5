"""The poller: messages that are due within SQS's longest delay are claimed, sent, and deleted once SQS has confirmed
them.

A crash between any two of these loses nothing: before the send, the claim runs out and another poller sends the
message; between send and delete, the message is sent a second time. Nothing is deleted that was not confirmed.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from hipq.errors import HipqError
from hipq.job.when import SECOND
from hipq.waiter.claims import ClaimResult, ItemClaims
from hipq.waiter.clock import AwsClock
from hipq.waiter.delivery import Delivery, batches
from hipq.waiter.destinations import Destination, Destinations
from hipq.waiter.item import Scheduled, readable
from hipq.waiter.limits import BATCH, HORIZON
from hipq.waiter.poller_notes import NotedLooks, PollerNotes
from hipq.waiter.table_reader import TableReader
from hipq.waiter.tables import MessageTable, MessageTables

log: Final = logging.getLogger("hipq.waiter")

SOON: Final = 30.0
"""Seconds until the next look when a message was left undone, or to another poller, which may have died."""


@dataclass(slots=True)
class Polled:
    """The result of one look at the tables."""

    sent: int = 0
    """Messages that SQS confirmed and that were deleted from the table."""
    failed: int = 0
    """Messages that were not sent this time and stay in the table."""
    again: int = 0
    """Failed messages whose problem may be over in a moment."""
    lost: int = 0
    """Messages that were sent but not deleted, because the claim had run out or DynamoDB did not answer. They may be
    sent again."""
    taken: int = 0
    """Messages left to another poller, which is sending them or was there first."""
    pages: int = 0
    read_units: float = 0.0
    """The read units that DynamoDB counted."""
    problems: list[str] = field(default_factory=list)
    """What went wrong, one sentence each."""
    next_due: int | None = None
    """When the next FIFO message is due that must not be sent yet, in microseconds since 1970."""

    def add(self, other: Polled) -> None:
        self.sent += other.sent
        self.failed += other.failed
        self.again += other.again
        self.lost += other.lost
        self.taken += other.taken
        self.problems += [one for one in other.problems if one not in self.problems]


@dataclass(slots=True)
class Look:
    """One look at one table."""

    table: MessageTable
    token: str
    polled: Polled
    blocked: set[tuple[str, str]] = field(default_factory=set)
    """FIFO groups of which an earlier message could not be sent now, so that no later one may be."""
    down: set[str] = field(default_factory=set)
    """Queues that accept nothing right now."""


class Poller:
    def __init__(
        self,
        reader: TableReader,
        claims: ItemClaims,
        delivery: Delivery,
        destinations: Destinations,
        tables: MessageTables,
        clock: AwsClock,
        threads: int,
        notes: PollerNotes,
    ) -> None:
        self._reader, self._claims, self._delivery = reader, claims, delivery
        self._destinations, self._tables, self._clock = destinations, tables, clock
        self._threads, self._notes = threads, notes
        self._looked: list[MessageTable] = []
        """The tables of the last look."""
        self._lock = threading.Lock()
        self._undeleted: list[tuple[MessageTable, Scheduled, str]] = []
        """Messages that were sent, but that DynamoDB did not confirm to have deleted."""

    # -- one look ---------------------------------------------------------------------------------------------------
    def poll(self, stop: threading.Event | None = None) -> Polled:
        """Look at all tables once. Failures go into `problems`, and the rest goes on."""
        polled = Polled()
        with self._lock:
            self._delete_the_rest(polled)
            self._looked = []
            for table in self._tables.usable(polled.problems):
                self._looked.append(table)
                look = Look(table, str(uuid.uuid4()), polled)  # a new token: a forked child must not share its parent's
                try:
                    self._look(look, stop or threading.Event())
                except HipqError as error:
                    polled.problems.append(str(error))
        return polled

    def _look(self, look: Look, stop: threading.Event) -> None:
        until = self._clock.now() + HORIZON * SECOND
        for page in self._reader.due(look.table, until):
            look.polled.pages += 1
            look.polled.read_units += page.read_units
            ready = [one for one in page.messages if self._ready(look, one)]
            self._send_unordered(look, [one for one in ready if not one.fifo], stop)
            self._send_in_order(look, [one for one in ready if one.fifo], stop)
            if stop.is_set():
                return

    def _ready(self, look: Look, message: Scheduled) -> bool:
        now = self._clock.now()
        if message.retry_at > now:
            look.polled.failed += 1
            return False
        if not readable(message):
            look.polled.failed += 1
            log.error("waiter: item %s of table %s: %s", message.job_id, look.table.name, message.error)
            self._put_off(look, message, message.error, look.polled)
            return False
        if message.fifo and message.due > now:
            look.polled.next_due = min(message.due, look.polled.next_due or message.due)
            return False
        if message.claimed_by and message.claimed_until >= now:
            look.polled.taken += 1
            look.blocked.add((message.queue, message.group))
            return False
        return True

    def _send_unordered(self, look: Look, messages: list[Scheduled], stop: threading.Event) -> None:
        by_queue: dict[str, list[Scheduled]] = {}
        for message in messages:
            by_queue.setdefault(message.queue, []).append(message)
        chunks = [chunk for of_one in by_queue.values() for chunk in batches(of_one)]
        random.shuffle(chunks)  # otherwise pollers that look at the same moment would collide at each item

        def one(chunk: list[Scheduled]) -> Polled:
            polled = Polled()
            if not stop.is_set():
                self._release(look, chunk, polled)
            return polled

        for polled in self._each(one, chunks):
            look.polled.add(polled)

    def _send_in_order(self, look: Look, messages: Iterable[Scheduled], stop: threading.Event) -> None:
        """Send messages of FIFO queues, never two of a group in one batch: SQS may take the second of them and not
        the first."""
        batch: list[Scheduled] = []
        for message in messages:
            if batch and (
                message.queue != batch[0].queue
                or len(batches([*batch, message])) > 1
                or message.group in {one.group for one in batch}
            ):
                self._release(look, batch, look.polled)
                batch = []
            if stop.is_set():
                return
            if (message.queue, message.group) not in look.blocked:
                batch.append(message)
        if batch:
            self._release(look, batch, look.polled)

    def _each(self, do: Callable[[list[Scheduled]], Polled], chunks: list[list[Scheduled]]) -> Iterable[Polled]:
        if self._threads == 1 or len(chunks) < 2:
            return map(do, chunks)
        with ThreadPoolExecutor(self._threads, "hipq-waiter") as pool:
            return list(pool.map(do, chunks))

    # -- one batch: claim, send, delete -----------------------------------------------------------------------------
    def _release(self, look: Look, batch: list[Scheduled], polled: Polled) -> None:
        """Claim, send and delete one batch for one queue."""
        assert len(batch) <= BATCH
        destination = self._destination(look, batch, polled)
        if destination is None:
            return
        claimed = self._clock.now()
        mine = self._taken(look, batch, polled)
        if not mine:
            return
        outcome = self._delivery.send(destination, mine, claimed)
        for message in outcome.sent:
            self._delete(look.table, message, look.token, polled)
        for message, why in outcome.refused:
            log.error("waiter: %s of table %s was refused: %s", message.job_id, look.table.name, why)
            self._put_off(look, message, why, polled)
        for message in outcome.unsent:
            self._quietly(polled, self._claims.give_back, look.table, message, look.token)
        polled.failed += len(outcome.refused) + len(outcome.unsent) + len(outcome.unsure)
        polled.again += len(outcome.unsent) + len(outcome.unsure)
        look.blocked |= {(one.queue, one.group) for one in (*outcome.unsent, *outcome.unsure)}
        if outcome.problem:
            look.down.add(destination.name)
            polled.problems.append(outcome.problem)

    def _destination(self, look: Look, batch: list[Scheduled], polled: Polled) -> Destination | None:
        """The batch's queue, looked up before anything is claimed; None if it accepts nothing now."""
        queue = batch[0].queue
        if queue not in look.down:
            try:
                return self._destinations.of(queue)
            except HipqError as error:
                look.down.add(queue)
                polled.problems.append(str(error))
        polled.failed += len(batch)
        return None

    def _taken(self, look: Look, batch: list[Scheduled], polled: Polled) -> list[Scheduled]:
        mine = []
        for n, message in enumerate(batch):
            try:
                taken = self._claims.take(look.table, message, look.token)
            except HipqError as error:
                polled.problems.append(str(error))
                polled.failed += len(batch) - n
                look.blocked |= {(one.queue, one.group) for one in batch[n:]}
                break  # the messages claimed so far are sent
            if taken is ClaimResult.MINE:
                mine.append(message)
                continue
            polled.taken += 1
            if taken is ClaimResult.OTHERS:
                look.blocked.add((message.queue, message.group))
            if not message.fifo:
                # Another poller is at work here, most likely on all of the batch, and each try costs a write. What that
                # poller leaves is found by the next look, which is soon.
                polled.taken += len(batch) - n - 1
                break
        return mine

    def _delete(self, table: MessageTable, message: Scheduled, token: str, polled: Polled) -> None:
        try:
            if self._claims.done(table, message, token):
                polled.sent += 1
            else:
                polled.lost += 1
        except HipqError as error:
            polled.lost += 1
            polled.problems.append(str(error))
            self._undeleted.append((table, message, token))

    def _delete_the_rest(self, polled: Polled) -> None:
        """Delete the messages that a former look sent and could not delete: otherwise they are sent again when their
        claims run out."""
        rest, self._undeleted = self._undeleted, []
        for table, message, token in rest:
            self._delete(table, message, token, polled)

    def _put_off(self, look: Look, message: Scheduled, why: str, polled: Polled) -> None:
        self._quietly(polled, self._claims.put_off, look.table, message, look.token, why)

    def _quietly(self, polled: Polled, write: Callable[..., None], *what: object) -> None:
        """Write; if DynamoDB does not answer, the claim runs out by itself."""
        try:
            write(*what)
        except HipqError as error:
            polled.problems.append(str(error))

    # -- look after look --------------------------------------------------------------------------------------------
    def run(self, stop: threading.Event, delay: float) -> None:
        """Look every `delay` seconds until `stop` is set."""
        if delay >= HORIZON:
            log.warning(
                "waiter: a look every %g s is too seldom, messages will be late: set delay well below %d s",
                delay, HORIZON,
            )  # fmt: skip
        known: set[str] = set()
        noted = NotedLooks(self._notes, self._clock.now(), delay)
        while not stop.is_set():
            polled = self.poll(stop)
            known = _reported(polled, known)
            problem = min(polled.problems, default="")
            noted.looked(self._looked, self._clock.now(), polled.sent, polled.failed, problem)
            stop.wait(self._pause(polled, delay))
        noted.ended(self._looked)

    def _pause(self, polled: Polled, delay: float) -> float:
        pause = delay * random.uniform(0.9, 1.0)  # pollers that were started together should not look together
        if self._undeleted or polled.again or polled.lost or polled.taken:
            pause = min(pause, SOON)
        if polled.next_due is not None:
            pause = min(pause, max(polled.next_due - self._clock.now(), 0) / SECOND + 0.01)
        return pause


def _reported(polled: Polled, known: set[str]) -> set[str]:
    """Log each problem once, not at every look."""
    problems = set(polled.problems)
    for problem in sorted(problems - known):
        log.warning("waiter: %s", problem)
    if known and not problems:
        log.info("waiter: all is well again")
    if polled.sent:
        log.info("waiter: sent %d messages to SQS", polled.sent)
    return problems
