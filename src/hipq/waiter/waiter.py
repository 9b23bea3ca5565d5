"""The waiter: composition, no logic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from hipq import config
from hipq.errors import Invalid, shown
from hipq.job.names import whole
from hipq.job.when import duration, seconds
from hipq.waiter.claims import ItemClaims
from hipq.waiter.clients import AwsClients
from hipq.waiter.clock import AwsClock
from hipq.waiter.connection import connector
from hipq.waiter.consumer import CONCURRENCY, WAIT, Consumer
from hipq.waiter.delivery import Delivery
from hipq.waiter.destinations import Destinations
from hipq.waiter.intake import Handling, Retry
from hipq.waiter.item import Scheduled
from hipq.waiter.limits import queue_name
from hipq.waiter.message import Attributes, Message
from hipq.waiter.parked import ParkedMessages
from hipq.waiter.poller import Polled, Poller
from hipq.waiter.poller_notes import PollerNotes
from hipq.waiter.schedule import WaitingMessages
from hipq.waiter.sending import Fallback, MessageSender, Sent
from hipq.waiter.table_reader import TableReader
from hipq.waiter.tables import MessageTables

SCHEDULER: Final = "shoryuken-waiter"
DELAY: Final = 300.0

Handler = TypeVar("Handler", bound=Callable[[Message], Any])


class Waiter:
    """Sends messages to SQS queues, any time ahead. It calls AWS only when it is used.

    `queues` are those whose tables the poller reads. `table`: one table for all of them; None: each queue has a table
    of its own name. `scheduler` is the hash key of all items. `delay`: the seconds between two looks of the poller;
    None: `delay` in [waiter] of hipq.toml, else 300. `clock` gives the seconds since 1970, for tests.
    """

    def __init__(
        self,
        queues: Iterable[str] = (),
        *,
        table: str | None = None,
        scheduler: str = SCHEDULER,
        delay: float | timedelta | None = None,
        session: Any = None,
        endpoint_url: str | None = None,
        region: str | None = None,
        clock: Callable[[], float] | None = None,
        threads: int = 4,
    ) -> None:
        if isinstance(queues, str):
            raise Invalid(f"queues must be a list of names, like [{shown(queues)}]")
        self.queues = tuple(dict.fromkeys(map(queue_name, queues)))
        self.delay = _usual_delay() if delay is None else seconds(delay, "delay", least=0.01)
        if not isinstance(scheduler, str) or not 0 < len(scheduler.encode(errors="replace")) <= 1024:
            raise Invalid(f"scheduler must be a short text, not {shown(scheduler)}")
        whole(threads, "threads", 1, 64)
        self.handlers: dict[str, Handling] = {}
        self.clock = AwsClock(clock)
        self.clients = AwsClients(session, endpoint_url, region, self.clock)
        self.destinations = Destinations(self.clients)
        self.tables = MessageTables(self.clients, self.queues, table)
        reading = TableReader(self.clients, scheduler)
        self._sender = MessageSender(self.clients, self.destinations, self.tables, self.clock, scheduler)
        self._schedule = WaitingMessages(self.clients, reading, self.tables, self.clock, scheduler)
        self.parked = ParkedMessages(self.clients, reading, scheduler)
        self.poller_notes = PollerNotes(self.clients, scheduler)
        self._poller = Poller(
            reading,
            ItemClaims(self.clients, self.clock, scheduler),
            Delivery(self.clients, self.destinations, self.clock),
            self.destinations,
            self.tables,
            self.clock,
            threads,
            self.poller_notes,
        )

    def send(
        self,
        queue: str,
        body: str,
        attributes: Attributes | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        group: str | None = None,
        dedup: str | None = None,
        fallback: Fallback | None = None,
        job_id: str | None = None,
    ) -> Sent:
        """Send a message now, at a time, or after a delay; a past time means now. Up to 15 minutes SQS itself delays
        the message. A message that is due later, or at all later in a FIFO queue, is kept in the queue's table. Without
        a table: NoTable, or `fallback`.

        `job_id`: the id that the message has in your program; it names the message in the table, for `cancel` and
        `reschedule`. A message sent again unchanged under the same id is kept once; Conflict: another message has that
        id.
        """
        return self._sender.send(queue, body, attributes, at, delay, group, dedup, fallback, job_id)

    def poll(self) -> Polled:
        """Look at the tables once and send the messages that are due within SQS's 15 minutes."""
        return self._poller.poll()

    def run(self, stop: threading.Event) -> None:
        """Look at the tables every `delay` seconds until `stop` is set."""
        self._poller.run(stop, self.delay)

    def list(self, queue: str, *, limit: int = 100, after: str | Scheduled | None = None) -> Sequence[Scheduled]:
        """The messages that wait for this queue, earliest first. `after`: the last message of the previous list, or
        its `cursor`."""
        return self._schedule.list(queue, limit, after)

    def cancel(self, queue: str, job_id: str) -> Scheduled:
        """Delete a waiting message and return it. NotFound: it was already sent, or never existed. Conflict: a
        poller is sending it right now. `maybe_sent`: a poller died while sending it, so the message may arrive all
        the same."""
        return self._schedule.cancel(queue, job_id)

    def reschedule(
        self, queue: str, job_id: str, *, at: datetime | None = None, delay: float | timedelta | None = None
    ) -> Scheduled:
        """Give a waiting message another time, and return it. The poller's next look or a later one sends it, even
        if the new time is nearer. NotFound and Conflict as in `cancel`."""
        return self._schedule.reschedule(queue, job_id, at, delay)

    # -- the consumer's side ----------------------------------------------------------------------------------------
    def handle(
        self, queue: str, *, visibility: int | None = None, retry: Retry | None = None
    ) -> Callable[[Handler], Handler]:
        """Make this function the handler of a queue's messages. A message is deleted when the handler returns, and
        received again when it raises. Each message is hidden from others for `visibility` seconds (None: as the
        queue is set), and for longer while its handler runs. `retry`: the seconds until a failed message is received
        again, or a function of the message; None: when its hiding time is over."""
        if queue not in self.queues:
            raise Invalid(f"this waiter does not know the queue {shown(queue)}: name it in Waiter(queues=[...])")
        if queue in self.handlers:
            raise Invalid(f"the queue {queue} has a handler already")

        def having(handler: Handler) -> Handler:
            self.handlers[queue] = Handling.of(handler, visibility, retry)
            return handler

        return having

    def consumer(
        self,
        queues: Iterable[str] | None = None,
        *,
        concurrency: int = CONCURRENCY,
        wait: int = WAIT,
        poller: bool = True,
    ) -> Consumer:
        """A consumer of these queues, or of all queues that have a handler; see `work`."""
        wanted = list(self.handlers if queues is None else queues)
        for name in wanted:
            if name not in self.handlers:
                raise Invalid(f"the queue {shown(name)} has no handler")
        if not wanted:
            raise Invalid("there is nothing to consume: give a queue its handler with @waiter.handle(QUEUE)")
        handlings = {name: self.handlers[name] for name in wanted}
        run = self.run if poller else None
        return Consumer(connector(self.clients, wait), handlings, run, concurrency=concurrency, wait=wait)

    def work(
        self,
        stop: threading.Event,
        *,
        stop_now: threading.Event | None = None,
        concurrency: int = CONCURRENCY,
        wait: int = WAIT,
        poller: bool = True,
    ) -> None:
        """Handle messages, `concurrency` at a time, until `stop` is set, with one poller beside. Running handlers
        finish, unless `stop_now` is set: then their messages are given back, too. `wait`: the seconds SQS waits for
        messages, which a stop may take."""
        self.consumer(concurrency=concurrency, wait=wait, poller=poller).run(stop, stop_now)


def _usual_delay() -> float:
    found = config.read().settings.waiter.delay
    return DELAY if found is None else duration(found, "[waiter] delay", least=0.01)
