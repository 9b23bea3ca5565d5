"""Answers: brought by a call, as messages, or to a signed URL; and waiting for what a job comes to."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hipq.errors import Invalid, shown
from hipq.job.answer import Answered
from hipq.job.model import Row
from hipq.job.when import later, seconds
from hipq.job_type import JobType
from hipq.looking import Looking

if TYPE_CHECKING:
    from hipq.answers.inbox import Inbox
    from hipq.answers.listening import Listener
    from hipq.answers.reading import Read
    from hipq.answers.results import Results
    from hipq.callback.signing import Signer


class Answering(Looking):
    """The part of `Hipq` that answers come to."""

    _listeners: dict[tuple[str, str], Callable[[], Listener]]
    _waiting_for: Results | None
    _callback_url: str | None
    _signer: Signer | None
    _lock: threading.Lock
    _away = False
    """It is on another database for a while, as in a test."""

    def answer(
        self,
        queue: str,
        type: str,
        key: str,
        data: Any = None,
        *,
        answer_id: str | None = None,
        error: bool = False,
        attempt: int | None = None,
        tenant: str | None = None,
    ) -> Answered:
        """Bring the answer of the job of this type that has this key; what became of it. It is kept when this returns.

        `answer_id` tells it from other answers to the key: a second one with the same id is a duplicate. `error`: it
        says that the work failed. `attempt`: the attempt it is an answer to, for job types that fence others off.
        `tenant`: the tenant of a daemon whose job is meant; without it, a job that has no tenant.
        """
        options = {"answer_id": answer_id, "error": error, "attempt": attempt, "tenant": tenant}
        return self.inbox.deliver([self._queue(queue).arrived(type, key, data, **options)])[0].outcome

    def answer_many(self, answers: Iterable[Mapping[str, Any]]) -> list[Answered]:
        """Bring many answers, each with the names and values that `answer` takes: a thousand at a time in one
        transaction. If this raises, some thousands may be kept: give each an `answer_id`, and bring all of them again.
        """
        news = []
        if not isinstance(answers, Iterable):
            raise Invalid(f"answers must be a list of mappings, not {shown(answers)}")
        for one in answers:
            if not isinstance(one, Mapping) or not {"queue", "type", "key"} <= one.keys():
                raise Invalid(f"an answer is a mapping with queue, type, key and data, not {shown(one)}")
            if unknown := one.keys() - _ANSWER_FIELDS:
                raise Invalid(f"an answer has no {', '.join(map(str, unknown))}: {', '.join(sorted(_ANSWER_FIELDS))}")
            options = {name: value for name, value in one.items() if name not in ("queue", "type", "key", "data")}
            news.append(self._queue(one["queue"]).arrived(one["type"], one["key"], one.get("data"), **options))
        return [delivered.outcome for delivered in self.inbox.deliver(news)]

    def listen(
        self,
        url: str,
        *,
        to: tuple[str, str] | JobType,
        key: Read | str | None = None,
        error: Read | str | None = None,
        answer_id: Read | str | None = None,
        data: Read | str | None = None,
    ) -> None:
        """Answers to the jobs of this type come as messages on this stream. Workers listen to it while they run, as
        `hipq listen` does alone; any number of them share what comes.

        `key` finds the job's key in a message: a function of it, or a field of its JSON like "order.id". Without one it
        is the header `hipq-key`, or the message's own key. In the same way `error` says whether the work failed,
        `answer_id` what tells this answer from others, and `data` what the answer is, without one the message's JSON.
        """
        from hipq.answers.listening import Listener  # most programs listen to nothing
        from hipq.answers.reading import Reader
        from hipq.transports import address, check

        queue, job_type = (to.queue.name, to.name) if isinstance(to, JobType) else _pair(to)
        reader = Reader(self._queue(queue), job_type, key=key, error=error, answer_id=answer_id, data=data)
        where = address(url)
        check(where)
        name = f"{queue}.{job_type}"
        if (name, where.identity) in self._listeners:
            raise Invalid(f"{name} {where.identity} is listened to already")
        others = [other for other, identity in self._listeners if identity == where.identity]
        if others and ("group" in where.options or where.scheme in ("sqs", "amqp", "amqps")):
            raise Invalid(f"{where.identity} is listened to for {others[0]}: {name} would take some of its answers")
        self._listeners[name, where.identity] = lambda: Listener(
            self.name, name, where, reader, self.store, lambda: self.inbox, self.events
        )

    def listeners(self, queues: Sequence[str] | None = None) -> list[Listener]:
        """What is to be listened to, for the jobs of some queues or of all."""
        every = [make() for make in self._listeners.values()]
        return [one for one in every if queues is None or one.queue in queues]

    @contextmanager
    def listening(self, queues: Sequence[str] | None = None) -> Iterator[None]:
        """Until the end of the block, answers that come as messages are kept: see `listen`."""
        found = self.listeners(queues) if self._listeners and not self._away else []  # a test takes nobody's messages
        if not found:
            yield
            return
        from hipq.answers.listening import listening

        with listening(found):
            yield

    @property
    def inbox(self) -> Inbox:
        """The answers that came: to list, replay, re-key, drop."""
        from hipq.answers.inbox import Inbox  # a program that only adds jobs need not load it

        return Inbox(self.store, self.events, {queue.number: queue for queue in self.queues})

    def result(self, job_id: int, timeout: float | timedelta | None = None) -> Any:
        """The result of a job, once it has ended. JobFailed if it has none; TimeoutError if that takes longer."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        return self.endings.of(self._row(job_id), limit)

    async def aresult(self, job_id: int, timeout: float | timedelta | None = None) -> Any:
        """`result` for async code: any number of these wait together, and none of them holds a thread."""
        import asyncio

        limit = None if timeout is None else seconds(timeout, "timeout")
        row = await asyncio.to_thread(self._row, job_id)  # a look into the database
        return await self.endings.aof(row, limit)

    @property
    def endings(self) -> Results:
        if self._waiting_for is None:
            from hipq.answers.results import Results  # most programs wait for no result

            store = self.store
            with self._lock:
                self._waiting_for = self._waiting_for or Results(store, self.events)
        return self._waiting_for

    @property
    def callback_url(self) -> str:
        """Where `hipq.callbacks` can be reached from outside; "" if nothing says so."""
        if self._callback_url is None:
            from hipq.config import callback_url

            self._callback_url = callback_url()
        if self._callback_url and not re.match(r"https?://[^/]", self._callback_url):
            raise Invalid(f"callback_url must be a URL like https://shop.example/hipq, not {shown(self._callback_url)}")
        return self._callback_url

    @property
    def signer(self) -> Signer:
        """Signs callback URLs, and checks them."""
        if self._signer is None:
            from hipq.callback.signing import Signer  # most programs are not called back

            self._signer = Signer(self.store, self.name)
        return self._signer

    def sign(self, row: Row, valid: float | timedelta | None) -> str:
        """What `job.callback_url()` returns."""
        base = self.callback_url
        if not base:
            raise Invalid(
                "nothing says where this program is called back: Hipq(..., callback_url=), $HIPQ_CALLBACK_URL, "
                "or callback_url in hipq.toml"
            )
        until = 0 if valid is None else later(self.store.now(), seconds(valid, "valid", least=1))
        return f"{base.rstrip('/')}/{self.signer.sign(row, until)}"


def callbacks(app: Answering, *, size: int = 1 << 20, rate: float = 1000.0) -> Any:
    """An ASGI application that takes the answers brought to `job.callback_url()`: mount it where `callback_url` of your
    Hipq says. `size`: bytes an answer may have. `rate`: answers in a second from one address; 0 = any number."""
    from hipq.callback.asgi import callbacks as made  # most programs are not called back

    return made(app, size=size, rate=rate)


def _pair(to: tuple[str, str]) -> tuple[str, str]:
    if not isinstance(to, (tuple, list)) or len(to) != 2 or not all(isinstance(one, str) for one in to):
        raise Invalid(f'to must be a job type, or a queue and a job type like ("orders", "charge"), not {shown(to)}')
    return to[0], to[1]


_ANSWER_FIELDS = {"queue", "type", "key", "data", "answer_id", "error", "attempt", "tenant"}
