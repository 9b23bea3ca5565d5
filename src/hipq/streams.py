"""`app.streams`: the streams on which answers come as messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypedDict

from hipq.errors import Invalid, shown
from hipq.job_type import JobType

if TYPE_CHECKING:
    from hipq.answers.listening import Listener
    from hipq.answers.reading import Read, Reader
    from hipq.app import Hipq
    from hipq.callback.webhook import Webhook
    from hipq.transports import Address


class Reading(TypedDict, total=False):
    """Where a message has the parts of an answer: each a function of the message, or a field of its JSON like
    "order.id"."""

    key: Read | str | None
    """The job's key; without it, the header `hipq-key`, a CloudEvent's subject, or the message's own key."""
    error: Read | str | None
    """Whether the work failed."""
    answer_id: Read | str | None
    """What tells this answer from others."""
    data: Read | str | None
    """What the answer is; without it, the message's JSON, or a CloudEvent's data."""


def check_reading(answers: str | None, secret: str, reading: Reading) -> None:
    """Refuse a request that says how its answers are read and not where they come from, or not a place."""
    given = ", ".join(name for name, one in {"secret": secret or None, **reading}.items() if one is not None)
    if answers is None and given:
        raise Invalid(f"{given} says how to read answers, and answers= does not say where they come from")
    if answers is not None:
        _check_place(answers, secret)


def _check_place(url: str, secret: str) -> bool:
    """Refuse what is no place that answers can come from. Whether it is a webhook, and not a stream."""
    if isinstance(url, str) and url.startswith("webhook://"):
        from hipq.callback.webhook import webhook_at

        webhook_at(url, secret)
        return True
    from hipq.transports import address, check

    check(address(url))
    if secret:
        raise Invalid("secret is for webhooks, like webhook://bank: who may write to a stream is up to its server")
    return False


class Streams:
    """The streams that an instance listens to."""

    def __init__(self, app: Hipq) -> None:
        self._app = app
        self._listeners: dict[tuple[str, str], Callable[[], Listener]] = {}
        self.webhooks: dict[str, Webhook] = {}
        """The webhooks by their names, which `hipq.callbacks` takes."""

    def add(self, url: str, to: tuple[str, str] | JobType, secret: str, reading: Reading) -> None:
        """Listen to one more stream or webhook from now on; see `Hipq.listen`."""
        from hipq.answers.reading import Reader
        from hipq.transports import address

        queue, job_type = (to.queue.name, to.name) if isinstance(to, JobType) else _pair(to)
        name, is_webhook = f"{queue}.{job_type}", _check_place(url, secret)
        if is_webhook and reading.get("answer_id") is None:
            reading = {**reading, "answer_id": lambda message: message.id}  # which is signed
        reader = Reader(self._app.declared.find(queue), job_type, **reading)
        if is_webhook:
            self._add_webhook(url, secret, name, reader)
        else:
            self._add_stream(address(url), name, reader)

    def _add_webhook(self, url: str, secret: str, name: str, reader: Reader) -> None:
        from hipq.callback.webhook import Webhook

        made = Webhook(url, secret, name, reader)
        if made.name in self.webhooks:
            raise Invalid(f"{url} is listened to for {self.webhooks[made.name].to}: each job type needs its own")
        self.webhooks[made.name] = made

    def _add_stream(self, where: Address, name: str, reader: Reader) -> None:
        from hipq.answers.listening import Listener  # most programs listen to nothing

        app = self._app
        if (name, where.identity) in self._listeners:
            raise Invalid(f"{name} {where.identity} is listened to already")
        others = [other for other, identity in self._listeners if identity == where.identity]
        if others and ("group" in where.options or where.scheme in ("sqs", "amqp", "amqps")):
            raise Invalid(f"{where.identity} is listened to for {others[0]}: {name} would take some of its answers")
        self._listeners[name, where.identity] = lambda: Listener(
            app.name, name, where, reader, app.store, lambda: app.answers, app.events
        )

    def listeners(self, queues: Sequence[str] | None = None) -> list[Listener]:
        """A listener for each stream with answers to jobs of these queues, or of all queues."""
        every = [make() for make in self._listeners.values()]
        return [one for one in every if queues is None or one.queue in queues]

    @contextmanager
    def listening(self, queues: Sequence[str] | None = None) -> Iterator[None]:
        """Until the end of the block, answers that come as messages are kept."""
        found = [] if self._app.is_elsewhere else self.listeners(queues)  # a test takes nobody's messages
        if not found:
            yield
            return
        from hipq.answers.listening import listening

        with listening(found):
            yield


def _pair(to: tuple[str, str]) -> tuple[str, str]:
    if not isinstance(to, (tuple, list)) or len(to) != 2 or not all(isinstance(one, str) for one in to):
        raise Invalid(f'to must be a job type, or a queue and a job type like ("orders", "charge"), not {shown(to)}')
    return to[0], to[1]
