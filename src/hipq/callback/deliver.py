"""From a callback to an answer in the inbox: the part that uses the database, in a thread.

The answer is for the very job that the URL names: another job that has the key by now never sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from hipq.answers.arrive import AnyQueue, arrive
from hipq.answers.inbox import Inbox
from hipq.callback.request import BadCallback, CallbackRequest
from hipq.callback.signing import Expired, Forbidden, SignedClaims, Signer
from hipq.errors import Invalid
from hipq.events import Events
from hipq.job.answer import Answered, NewAnswer
from hipq.job.model import Row, queue_of
from hipq.job.spec import Spec
from hipq.job.states import FINAL
from hipq.stores.protocols import Store


class NumberedQueue(AnyQueue, Protocol):
    @property
    def number(self) -> int: ...


class AnswerApp(Protocol):
    """What this module needs of a Hipq."""

    name: str
    events: Events

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

    def made(self, claims: SignedClaims, request: CallbackRequest, body: bytes) -> NewAnswer:
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
        said = {"answer_id": request.answer_id, "error": request.error, "attempt": claims.attempt or None}
        try:
            new = queue.arrived(row.job_type, row.job_key, request.data(body), job=row.id, **said)
        except Invalid as error:
            raise BadCallback(400, str(error)) from None
        if not claims.expires and _is_past(row, new):
            raise Expired
        return replace(new, tenant=row.tenant)

    def deliver(self, news: Sequence[NewAnswer]) -> Sequence[Answered | Exception]:
        """Store all answers in one transaction."""
        queues: dict[int, AnyQueue] = {**self._undeclared, **{queue.number: queue for queue in self._app.queues}}
        inbox = Inbox(self._app.store, self._app.events, queues)
        delivered = inbox.deliver(news)
        return [one.outcome for one in delivered]

    def _queue(self, number: int) -> AnyQueue | None:
        """The queue of this number, even if only other programs declare it: that is no reason to lose an answer."""
        for queue in self._app.queues:
            if queue.number == number:
                return queue
        if number not in self._undeclared:
            for known in self._app.store.queues(self._app.name):
                self._undeclared[known.number] = Undeclared(self._app.store, known.number, known.name)
        return self._undeclared.get(number)


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
