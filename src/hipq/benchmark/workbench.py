"""An application of its own in the database that is measured, which leaves nothing behind.

Its tables have a random part in their names that no naming strategy makes. A lease shows that a run is alive: the next
run removes tables without one, because their run was killed.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import time
from typing import Any, Final

import msgspec

from hipq import Answer, Hipq, Job, Ok, Queue, Wait
from hipq.benchmark.interruption import Interruption
from hipq.engine.prune import prune
from hipq.errors import Conflict, HipqError, NameClash, NotFound
from hipq.job.states import FINAL, Code
from hipq.job.when import SECOND
from hipq.stores.values import QueueTables

APP: Final = "hipq_bench"
ADDING, DRAINING, ANSWERING, PICKING = QUEUES = "adding", "draining", "answering", "picking"
"""The queues, one for each kind of measurement: rows that one leaves in its tables must not slow down another."""
LEASE: Final = 5.0
"""Seconds after which a killed run is known to be dead."""
CONCURRENCY: Final = 10
"""Handlers at a time, the default of `hipq worker`."""
_OURS: Final = re.compile(rf"bench_[0-9a-f]{{12}}_({'|'.join(QUEUES)})")
_BUSY: Final = "another `hipq bench` is at work on this database: two would measure each other"


def bench_app(url: str, token: str) -> Hipq:
    """The application, as this process and its worker know it. Its handlers do nothing, so that only hipq is
    measured."""
    app = Hipq(APP, url, table_naming=lambda _, queue: f"bench_{token}_{queue}")
    adding, draining, answering, picking = (app.queue(name) for name in QUEUES)
    adding.job("work")(lambda _: None)
    draining.job("work")(lambda _: None)

    @draining.job
    async def awork(_: Job[Any]) -> None: ...

    @picking.job
    def tell(_: Job[Any]) -> None:
        """Print when the handler began, for the process that reads this output."""
        os.write(sys.__stdout__.fileno() if sys.__stdout__ else 1, b"%d\n" % time.monotonic_ns())

    answering.job("ask")(lambda _: Wait())
    looking = answering.job("ask_and_look")(lambda _: Wait())

    @looking.answered
    def look(_: Job[Any], answer: Answer) -> Ok:
        return Ok(answer.data)

    return app


class NotRemoved(HipqError):
    """The tables are still in the database, but all measurements are done."""


class Workbench:
    def __init__(self, url: str, interruption: Interruption) -> None:
        self.token = secrets.token_hex(6)
        self.app = bench_app(url, self.token)
        self._interruption = interruption
        self._engine_id = 0
        self._renewed = 0.0
        self._made = False
        """Whether there may be something to remove."""

    def __enter__(self) -> Workbench:
        try:
            self._remove_leftovers()
            self._register()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            if self._made:
                self._remove()
        except HipqError as also:
            left = f"what was made for it is still in the database: {also}; the next `hipq bench` removes it"
            if error is None:
                raise NotRemoved(left) from None
            print(f"hipq: {left}", file=sys.stderr)  # then the first error
        finally:
            self.app.close()

    # -- coming and going -------------------------------------------------------------------------------------------
    def _remove_leftovers(self) -> None:
        """Remove what killed runs left. A lease without its run expires in seconds."""
        until = time.monotonic() + LEASE + 1
        for queue in self._found():
            while True:
                self._interruption.heed()
                try:
                    self.app.store.drop_queue(queue.number)
                    break
                except NotFound:
                    break  # its run has removed it
                except Conflict:
                    if time.monotonic() > until:
                        raise Conflict(_BUSY) from None
                time.sleep(0.1)

    def _found(self) -> list[QueueTables]:
        return [queue for queue in self.app.store.queues(APP) if _OURS.fullmatch(queue.table)]

    def _register(self) -> None:
        self._made = True
        try:
            numbers = [queue.number for queue in self.app.queues]
        except NameClash:
            raise Conflict(_BUSY) from None
        self.renew()
        if not set(numbers) <= {queue.number for queue in self._found()}:
            raise Conflict(_BUSY)  # another run took them for leftovers, before this one had a lease

    def renew(self) -> None:
        """Renew the run's lease: a commit of one small row, the smallest there is."""
        store, self._renewed = self.app.store, time.monotonic()
        if not self._engine_id or not store.renew_lease(self._engine_id, LEASE):
            serves: dict[str, list[str]] = {str(queue.number): [] for queue in self.app.queues}
            label = f"hipq bench on {socket.gethostname()}:{os.getpid()}"
            self._engine_id = store.take_lease(LEASE, label, msgspec.json.encode(serves).decode())

    def _remove(self) -> None:
        """Remove the run's queues and the leases of its engines, none of which runs any more."""
        mine = {str(queue.number): queue for queue in self._found() if self.token in queue.table}
        for engine in self.app.store.engines():
            if engine.serves.keys() & mine.keys():
                self.app.store.renew_lease(engine.engine_id, 0)
        for queue in mine.values():
            self.app.store.drop_queue(queue.number)

    # -- for the measurements ---------------------------------------------------------------------------------------
    def pause(self) -> None:
        """Between two rounds, end if asked to, else renew the lease. Not at every round, because a commit wakes idle
        workers."""
        self.heed()
        if time.monotonic() - self._renewed > LEASE / 4:
            self.renew()

    def heed(self) -> None:
        self._interruption.heed()

    def queue(self, name: str) -> Queue:
        return next(queue for queue in self.app.queues if queue.name == name)

    def drain(self, name: str) -> float:
        """Run all jobs of a queue in this process; returns the seconds from the first look to the last commit."""
        engine = self._interruption.engine = self.app.engine([name], CONCURRENCY, lease=LEASE)
        try:
            began = time.perf_counter()
            engine.run(until_empty=True)
            took = time.perf_counter() - began
        finally:
            self._interruption.engine = None
            engine.executor.close()
        self.heed()  # it may have been stopped before it was done
        return took

    def check_done(self, name: str, count: int) -> None:
        """Check that all jobs have succeeded and none is left, and delete them."""
        store, number = self.app.store, self.queue(name).number
        failed = [job for job in self.app.jobs(name, state=FINAL) if job.code != Code.OK]
        ended = sum(prune(store, number, (store.now() + 3600 * SECOND, 0)))
        left = self.app.jobs(name, limit=1)
        if failed or left or ended != count:
            wrong = f"; job {failed[0].id} ended with {failed[0].code}: {failed[0].fault}" if failed else ""
            more = "some are not final" if left else "none is left"
            raise HipqError(f"the figures would be wrong: {count} jobs were added, {ended} ended, {more}{wrong}")
