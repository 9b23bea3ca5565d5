"""Where far tasks leave Celery's way to the broker: the last step before it, through which all of them go.

`delay`, `apply_async`, signatures, chains, groups, chords, `retry`, beat: they all end in `app.amqp.send_task_message`.
There Celery decides on exchange, routing key and properties, lets `before_task_publish` change them, and calls a
producer. A far task gets a producer that keeps what it is told to publish.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from celery.app.task import Context
from kombu.serialization import loads as deserialized
from kombu.utils.json import loads
from msgspec import convert, json

from hipq import Hipq
from hipq.celery.message import TaskMessage, eta_of, message
from hipq.errors import Conflict, DuplicateKey, Invalid, NotFound
from hipq.job import names
from hipq.job.states import RUNNING
from hipq.job.view import Job
from hipq.job_type import JobType
from hipq.stores.base import Filter

LOGGER: Final = logging.getLogger("hipq.celery")
TWINS: Final = 4
"""How many runs of one task may be kept at once. Two are, for a moment, when a task retries before the job that
published it is settled; and three, if whoever published it was killed just then."""
NATIVE: Final = "celery_delayed_"
"""What exchanges of Celery's own delayed delivery begin with (RabbitMQ with quorum queues): the broker keeps those."""


class Keeper:
    """Keeps what is further out than `further_than` seconds. `publish` is the job type that publishes it when due."""

    def __init__(self, app: Any, hipq: Hipq, publish: JobType, further_than: float) -> None:
        self._app, self._hipq, self._publish = app, hipq, publish
        self._further_than = further_than
        self._send: Callable[..., Any] | None = None
        self._lock = threading.Lock()
        self.active = True

    # -- keeping ------------------------------------------------------------------------------------------------------
    def send_task_message(self, producer: Any, name: str, made: Any, **options: Any) -> Any:
        """Stands in for Celery's own."""
        if self.active and self._is_far(made, options) and self._is_ours(producer):
            producer = KeepingProducer(
                producer, lambda body, publish_options: self.keep(message(name, body, time.time(), publish_options))
            )
        return self._celerys()(producer, name, made, **options)

    def keep(self, wanted: TaskMessage) -> None:
        """Store it, unless this run of this task is waiting to be published already."""
        eta = eta_of(({"eta": wanted.eta}, {}, (), None), None, self._app)
        data = json.decode(json.encode(wanted))  # as Celery would send it: its headers may have tuples in them
        for key in keys(wanted.id):
            try:
                self._publish.enqueue(data, key=key, at=eta)
                return
            except DuplicateKey as taken:
                if self._is_waiting(taken.id, wanted):
                    return
        raise Conflict(f"task {wanted.id} is kept {TWINS} times already: send it again when they are published")

    def _is_waiting(self, job: int, wanted: TaskMessage) -> bool:
        """Whether it is this run, and nobody has begun to publish it. One that may be at the broker already is the run
        before, whose task sends itself again."""
        try:
            found = self._hipq.job(job)
        except NotFound:
            return False
        return not found.attempt and convert(found.data, TaskMessage).is_same_as(wanted)

    def _is_far(self, made: Any, options: dict[str, Any]) -> bool:
        eta = eta_of(made, options.get("headers"), self._app)
        if eta is None or eta.timestamp() - time.time() <= self._further_than:
            return False
        exchange = options.get("exchange")
        return not str(getattr(exchange, "name", exchange) or "").startswith(NATIVE)

    def _is_ours(self, producer: Any) -> bool:
        """Whether it goes to the app's own broker. One given with connection= may be anywhere, later too."""
        theirs, ours = producer.connection, self._app.connection_for_write()
        if theirs is None or (theirs.alt and theirs.alt == ours.alt):
            return True
        return bool(theirs.as_uri() == ours.as_uri())

    def _celerys(self) -> Callable[..., Any]:
        """Made at the first use, as Celery does, since it looks at the configuration."""
        if self._send is None:
            with self._lock:
                if self._send is None:
                    self._check_limit()
                    self._send = self._app.amqp._create_task_sender()
        return self._send

    def _check_limit(self) -> None:
        redelivers = self._app.conf.broker_transport_options.get("visibility_timeout")
        if redelivers and self._further_than >= redelivers:
            LOGGER.warning(
                "the broker redelivers after %s seconds, and tasks up to %s seconds ahead are not kept: "
                "give install() a smaller further_than", redelivers, self._further_than,
            )  # fmt: skip

    # -- revoking -----------------------------------------------------------------------------------------------------
    def cancel(self, task_id: Any) -> bool:
        """Drop what is kept of this task, and note that it was revoked where its result would be."""
        found = False
        for job in self._kept(task_id):
            try:
                self._hipq.cancel(job.id, "revoked")
            except (Conflict, NotFound):
                continue  # it is published
            found = True
            if job.state != RUNNING:  # else a worker may get it, and will say so
                self._revoked(convert(job.data, TaskMessage))
        return found

    def _kept(self, task_id: Any) -> Iterator[Job[Any]]:
        """Jobs that keep this very task: another's id may look like a key of its second run. No id is nobody's, and to
        the store it would be everybody's; nor has any job one that cannot be a key."""
        try:
            names.key(task_id)
        except Invalid:
            return
        number = self._publish.queue.number
        for key in keys(task_id):
            for row in self._hipq.store.find(Filter(number, job_type=self._publish.name, job_key=key, table="live")):
                job: Job[Any] = Job(row)
                if convert(job.data, TaskMessage).id == task_id:
                    yield job

    def _revoked(self, kept: TaskMessage) -> None:
        """As a worker does it that gets a revoked task; so a chord hears of it too."""
        headers = loads(kept.headers)
        if headers.get("ignore_result") or self._app.conf.task_ignore_result:
            return
        accepted = {kept.content_type}  # this program has put it there itself
        about = {"id": kept.id, "task": kept.task, **headers}
        if not headers.get("compression"):
            body = deserialized(kept.text(), kept.content_type, kept.content_encoding, accept=accepted)
            about |= body if isinstance(body, dict) else body[2]
        self._app.backend.mark_as_revoked(kept.id, "revoked", request=Context(about))


class KeepingProducer:
    """In the place of a producer, for one task: what is published first is kept, what follows is news of it."""

    def __init__(self, producer: Any, keep: Callable[[Any, dict[str, Any]], None]) -> None:
        self._producer, self._keep = producer, keep
        self._is_kept = False

    def publish(self, body: Any, **options: Any) -> None:
        if not self._is_kept:
            self._keep(body, options)
            self._is_kept = True
            return
        try:
            self._producer.publish(body, **options)
        except Exception as error:  # the task is kept: whoever sends it must not be told otherwise, and send it twice
            LOGGER.warning("a task was kept, but the event that says so was not sent: %s", error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


def keys(task_id: str) -> list[str]:
    """The keys of the jobs that may keep it: its id, nearly always."""
    return [task_id, *(f"{task_id}~{number}" for number in range(1, TWINS))]
