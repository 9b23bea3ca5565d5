"""From callbacks to answers in the inbox: the part that uses the database, in a thread.

An answer is for the very job that its URL names: another job that has the key by now never sees it. Callbacks that
arrive at the same time share transactions: while one batch commits, the next one collects. One thread writes the
batches, so that the event loop never waits for the disk. Each caller gets its outcome after the commit.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from msgspec.structs import replace

from hipq.answers.arrive import AnyQueue, arrive
from hipq.answers.inbox import Inbox
from hipq.callback.http import BadCallback, CallbackRequest, Overloaded
from hipq.callback.signing import Expired, Forbidden, SignedClaims, Signer
from hipq.callback.webhook import Webhook
from hipq.errors import Invalid, StoreError, StoreRefused
from hipq.events import Events
from hipq.job.answer import Answered, NewAnswer
from hipq.job.model import Row, queue_of
from hipq.job.spec import Spec
from hipq.job.states import FINAL
from hipq.stores.inbox_transaction import KEYS_AT_ONCE
from hipq.stores.protocols import Store

MOST: Final = KEYS_AT_ONCE
"""The most callbacks that may wait: as many as fit into one transaction."""

Make = Callable[[], NewAnswer]
Outcome = Answered | Exception
Deliver = Callable[[Sequence[NewAnswer]], Sequence[Outcome]]
Waiting = asyncio.Future[Answered]


class NumberedQueue(AnyQueue, Protocol):
    """A queue of the application, by all its numbers."""

    @property
    def numbers(self) -> list[int]: ...


class WebhookListener(Protocol):
    webhooks: dict[str, Webhook]


class AnswerApp(Protocol):
    """What this module needs of a Hipq."""

    name: str
    events: Events

    @property
    def streams(self) -> WebhookListener: ...

    @property
    def store(self) -> Store: ...
    @property
    def signer(self) -> Signer: ...
    @property
    def queues(self) -> Sequence[NumberedQueue]: ...


class AnswerDelivery:
    def __init__(self, app: AnswerApp) -> None:
        self._app = app
        self._undeclared: dict[int, Undeclared] = {}

    def made(self, claims: SignedClaims, request: CallbackRequest, body: bytes | bytearray) -> NewAnswer:
        """The callback as an answer to its job, as the job is now."""
        store = self._app.store
        if claims.is_over(store.now()):
            raise Expired
        row = store.get(claims.job)
        queue = self._queue(queue_of(claims.job))
        if row is None or queue is None:
            raise BadCallback(410, "the job of this URL is not there any more", "gone")
        if row.tenant != claims.tenant:
            raise Forbidden
        said = {"error": request.error, "attempt": claims.attempt or None}
        try:
            data, answer_id = request.answer(body)
            new = queue.arrived(row.job_type, row.job_key, data, job=row.id, answer_id=answer_id, **said)
        except Invalid as error:
            raise BadCallback(400, str(error)) from None
        if not claims.expires and _is_past(row, new):
            raise Expired
        return replace(new, tenant=row.tenant)

    def deliver(self, news: Sequence[NewAnswer]) -> Sequence[Answered | Exception]:
        """Store all answers in one transaction."""
        queues: dict[int, AnyQueue] = {
            **self._undeclared, **{number: queue for queue in self._app.queues for number in queue.numbers},
        }  # fmt: skip
        return [one.outcome for one in Inbox(self._app.store, self._app.events, queues).deliver(news)]

    def _queue(self, number: int) -> AnyQueue | None:
        """The queue of this number, even if only other programs declare it: that is no reason to lose an answer."""
        declared = next((queue for queue in self._app.queues if number in queue.numbers), None)
        if declared is None and number not in self._undeclared:
            for known in self._app.store.queues(self._app.name):
                self._undeclared[known.number] = Undeclared(self._app.store, known.number, known.name)
        return declared or self._undeclared.get(number)


def _is_past(row: Row, new: NewAnswer) -> bool:
    """Whether the job's deadline was so long ago that the answer is not wanted: its URL has expired by then."""
    over = row.update_time if row.state == FINAL else row.deadline
    return 0 < over <= new.arrived - new.early


class Undeclared:
    """A queue of the instance that this program's code does not declare. `app.known` would hand it to engines as
    well."""

    def __init__(self, store: Store, number: int, name: str) -> None:
        self.name = name
        self._store = store
        self._number = number

    def arrived(self, job_type: str, key: str, data: Any, **options: Any) -> NewAnswer:
        keeping = self._store.rules(self._number).keeping
        return arrive(self._number, job_type, key, data, self._store.now(), keeping=keeping, **options)

    def known(self, _job_type: str) -> Spec | None:
        return None


# -- batches -----------------------------------------------------------------------------------------------------------
class AnswerBatches:
    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._gathered: list[tuple[Make, Waiting]] = []
        self._delivery = False

    async def deliver(self, make: Make) -> Answered:
        """Deliver an answer with the next batch. `make` runs in the thread too, because it reads the database."""
        if self._pid != os.getpid():
            self._start()  # a forked child has no copy of the thread
        future: Waiting = asyncio.get_running_loop().create_future()
        with self._lock:
            if len(self._gathered) >= MOST:
                raise Overloaded
            self._gathered.append((make, future))
            start, self._delivery = not self._delivery, True
        if start:
            try:
                threading.Thread(target=self._deliver_batches, name="hipq-callbacks", daemon=True).start()
            except RuntimeError:  # no more threads: the next caller tries again
                with self._lock:
                    self._gathered, self._delivery = [one for one in self._gathered if one[1] is not future], False
                raise Overloaded from None
        return await future

    def _deliver_batches(self) -> None:
        while True:
            with self._lock:
                gathered, self._gathered = self._gathered, []
                if not gathered:
                    self._delivery = False
                    return
            news: list[NewAnswer] = []
            waiting: list[Waiting] = []
            refused: list[tuple[Waiting, Outcome]] = []
            down: Exception | None = None
            for make, future in gathered:
                if down is not None:  # trying each answer would take each of them as long
                    refused.append((future, down))
                    continue
                try:
                    news.append(make())
                    waiting.append(future)
                except Exception as error:
                    refused.append((future, error))
                    down = error if _is_down(error) else None
            _tell(refused)
            _tell(list(zip(waiting, self._arrived(news), strict=True)))

    def _arrived(self, news: list[NewAnswer]) -> Sequence[Outcome]:
        """Deliver all answers in one transaction; if one of them fails, each half by itself, down to that one."""
        if not news:
            return []
        try:
            return self._deliver(news)
        except Exception as error:
            if _is_down(error) or len(news) == 1:
                return [error] * len(news)
        half = len(news) // 2
        return [*self._arrived(news[:half]), *self._arrived(news[half:])]


def _is_down(error: Exception) -> bool:
    return isinstance(error, StoreError) and not isinstance(error, StoreRefused)


def _tell(outcomes: Sequence[tuple[Waiting, Outcome]]) -> None:
    """Give the callers their outcomes. Each event loop is woken once for all its callers, because waking costs a
    system call."""

    def done(loop: asyncio.AbstractEventLoop) -> None:
        for future, outcome in outcomes:
            if future.get_loop() is not loop or future.done():
                continue  # cancelled: the caller has gone
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    for loop in {future.get_loop() for future, _ in outcomes}:
        try:
            loop.call_soon_threadsafe(done, loop)
        except RuntimeError:
            pass  # the loop is closed: nobody waits for this any more
