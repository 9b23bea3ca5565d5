"""The place where far tasks leave Celery's way to the broker: its last step, which every task takes.

`delay`, `apply_async`, signatures, chains, groups, chords, `retry`, beat: they all end in `app.amqp.send_task_message`.
There Celery decides on exchange, routing key and properties, lets `before_task_publish` change them, and calls a
producer. A far task gets a producer that stores the message instead of publishing it.
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
from hipq.stores.filters import Filter

LOGGER: Final = logging.getLogger("hipq.celery")
RUNS_AT_ONCE: Final = 4
"""The number of runs of one task that may be kept at once. There are two for a moment when a task retries before the
job that published it is settled, and three if the publisher was killed just then."""
NATIVE: Final = "celery_delayed_"
"""The prefix of the exchanges of Celery's own delayed delivery (RabbitMQ with quorum queues): the broker keeps
those."""


class Keeper:
    """Keeps tasks that are further out than `further_than` seconds. `publish` is the job type that publishes them
    when due."""

    def __init__(self, app: Any, hipq: Hipq, publish: JobType, further_than: float) -> None:
        self._app, self._hipq, self._publish = app, hipq, publish
        self._further_than = further_than
        self._send: Callable[..., Any] | None = None
        self._lock = threading.Lock()
        self.active = True

    # -- keeping ------------------------------------------------------------------------------------------------------
    def send_task_message(self, producer: Any, name: str, made: Any, **options: Any) -> Any:
        """Replaces Celery's own `send_task_message`."""
        if self.active and self._is_far(made, options) and self._is_ours(producer):
            producer = KeepingProducer(
                producer, lambda body, publish_options: self.keep(message(name, body, time.time(), publish_options))
            )
        return self._original()(producer, name, made, **options)

    def keep(self, wanted: TaskMessage) -> None:
        """Store the task, unless this run of it is waiting to be published already."""
        eta = eta_of(({"eta": wanted.eta}, {}, (), None), None, self._app)
        data = json.decode(json.encode(wanted))  # as Celery would send it: its headers may contain tuples
        for key in keys(wanted.id):
            try:
                self._publish.enqueue(data, key=key, at=eta)
                return
            except DuplicateKey as taken:
                if self._is_waiting(taken.id, wanted):
                    return
        raise Conflict(f"task {wanted.id} is kept {RUNS_AT_ONCE} times already: send it again when they are published")

    def _is_waiting(self, job: int, wanted: TaskMessage) -> bool:
        """Whether the job keeps this run and nobody has begun to publish it. A run that may be at the broker already
        is the previous one, whose task sends itself again."""
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
        """Whether the producer sends to the app's own broker. One given with connection= may send anywhere."""
        theirs, ours = producer.connection, self._app.connection_for_write()
        if theirs is None or (theirs.alt and theirs.alt == ours.alt):
            return True
        return bool(theirs.as_uri() == ours.as_uri())

    def _original(self) -> Callable[..., Any]:
        """Celery's own function, made at the first use as Celery does, because it reads the configuration."""
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
        """Drop a kept task, and note where its result would be that it was revoked."""
        found = False
        for job in self._kept(task_id):
            try:
                self._hipq.cancel(job.id, "revoked")
            except (Conflict, NotFound):
                continue  # it is published
            found = True
            if job.state != RUNNING:  # a running one may reach a worker, which notes it
                self._revoked(convert(job.data, TaskMessage))
        return found

    def _kept(self, task_id: Any) -> Iterator[Job[Any]]:
        """The jobs that keep this very task: another task's id may look like a key of its second run. An empty id is
        no task's, but the store would take it for all of them; and an id that cannot be a key has no job."""
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
        """Note the revocation as a worker that receives a revoked task does, so that a chord is told too."""
        headers = loads(kept.headers)
        if headers.get("ignore_result") or self._app.conf.task_ignore_result:
            return
        accepted = {kept.content_type}  # this program has stored it itself
        about = {"id": kept.id, "task": kept.task, **headers}
        if not headers.get("compression"):
            body = deserialized(kept.text(), kept.content_type, kept.content_encoding, accept=accepted)
            about |= body if isinstance(body, dict) else body[2]
        self._app.backend.mark_as_revoked(kept.id, "revoked", request=Context(about))


class KeepingProducer:
    """Replaces the producer for one task: the first message is kept, and events about it that follow are published."""

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
        except Exception as error:  # the task is kept: an error would make its sender send it twice
            LOGGER.warning("a task was kept, but the event that says so was not sent: %s", error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


def keys(task_id: str) -> list[str]:
    """The keys of the jobs that may keep this task: its id, nearly always."""
    return [task_id, *(f"{task_id}~{number}" for number in range(1, RUNS_AT_ONCE))]
