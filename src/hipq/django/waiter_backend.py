"""`WaiterBackend`: a task is an SQS message; a task that is due later than SQS can delay waits in DynamoDB."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Final
from uuid import uuid4

import msgspec
from django.core import checks

from hipq.django import diagnosis
from hipq.django.base import TaskBackend, WorkerSettings
from hipq.django.perform import perform
from hipq.django.results import TRIED_ELSEWHERE, as_django, data_of, moment_of, now, task_of
from hipq.django.tasks import InvalidTask, TaskResult, TaskResultStatus, task_enqueued
from hipq.errors import Invalid, shown
from hipq.job import payload
from hipq.job.names import whole
from hipq.job.outcome import Failed, Ok, Retry, Wait
from hipq.middleware import fresh_connections
from hipq.signals import each_meant
from hipq.waiter import Message, Waiter
from hipq.waiter.limits import queue_name

_WAITER: Final = ("table", "scheduler", "delay", "region", "endpoint_url")
"""Options that are passed to the waiter as they are."""
_KNOWN: Final = (*_WAITER, "attempts", "fallback", "group", "visibility", "wait")
GROUP: Final = "tasks"
"""The group of all messages of a FIFO queue, unless OPTIONS says otherwise: the queue is in order as a whole."""

_waiters: dict[str, Waiter] = {}
"""The waiters. Django makes a backend for every thread; connections to AWS serve all of them."""
_lock = threading.Lock()

_log: Final = logging.getLogger("hipq")


class WaiterBackend(TaskBackend):
    _waiter: Waiter

    def _read(self, options: Mapping[str, Any]) -> None:
        if unknown := options.keys() - set(_KNOWN):
            raise Invalid(f"OPTIONS has {', '.join(sorted(map(str, unknown)))}; there are {', '.join(_KNOWN)}")
        if options.get("fallback") not in (None, "sqs"):
            raise Invalid(f"OPTIONS['fallback'] must be 'sqs' or nothing, not {shown(options['fallback'])}")
        if not isinstance(options.get("group", GROUP), str):
            raise Invalid(f"OPTIONS['group'] must be a text, not {shown(options['group'])}")
        self._attempts = whole(options.get("attempts", 0), "OPTIONS['attempts']", 0, 1_000)
        self._wait = whole(options.get("wait", 20), "OPTIONS['wait']", 0, 20)
        wanted = {name: options[name] for name in _WAITER if options.get(name) is not None}
        identity = repr((sorted(map(str, self.queues)), sorted(wanted.items())))
        with _lock:
            if identity not in _waiters:
                _waiters[identity] = Waiter(sorted(map(str, self.queues)), **wanted)
            self._waiter = _waiters[identity]

    # -- what Django asks of a backend ------------------------------------------------------------------------------
    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        try:
            queue_name(task.queue_name)
        except Invalid as error:
            raise InvalidTask(str(error)) from None

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Send the task now: a message is in no transaction of a database."""
        self.validate_task(task)
        self.usable()
        job_id, at = uuid4().hex, now()
        data = {"id": job_id, "enqueued_at": at.isoformat(), "task": task.module_path}
        data |= data_of(task, self.alias, args, kwargs)
        fifo = {"group": self.options.get("group", GROUP), "dedup": job_id} if task.queue_name.endswith(".fifo") else {}
        after = None if task.run_after is None else moment_of(task.run_after)
        self._waiter.send(
            task.queue_name,
            payload.encode(data),
            at=after,
            fallback=self.options.get("fallback"),
            job_id=job_id,
            **fifo,
        )
        result = _result(task, data, TaskResultStatus.READY)
        task_enqueued.send(type(self), task_result=result)
        return result

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        yield from super().check(**kwargs)
        yield from diagnosis.queue_names(self, queue_name)
        if find_spec("boto3") is None:
            yield checks.Error(
                f"{self.named()}: SQS needs boto3.", hint="pip install 'hipq[waiter]'", id="hipq.E003"
            )  # fmt: skip

    # -- working ----------------------------------------------------------------------------------------------------
    def work(self, wanted: WorkerSettings) -> None:
        """Consume the queues, with one poller beside. Messages are hidden from others while their tasks run."""
        self.usable()
        if wanted.until_empty:
            raise Invalid("a queue of SQS does not say when it is empty: leave --until-empty out")
        if wanted.metrics:
            raise Invalid("the worker of an SQS queue has no metrics: leave --metrics out")
        queues = sorted(self.queues) if wanted.queues is None else wanted.queues
        worker = f"{os.uname().nodename}-{os.getpid()}"
        for name in queues:
            if name not in self._waiter.handlers:
                self._waiter.handle(name, visibility=self.options.get("visibility"))(
                    lambda message: self.take(message, worker)
                )
        stop, stop_now = threading.Event(), threading.Event()

        def told() -> None:
            (stop_now if stop.is_set() else stop).set()

        heard = each_meant(told)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, heard)
        if self._waiter.consumer(queues, concurrency=wanted.concurrency, wait=self._wait).run(stop, stop_now):
            os._exit(1)  # tasks still run, and nobody waits: their messages are given back

    def take(self, message: Message, worker: str) -> None:
        """Call a message's task. Its exception goes on to the consumer, so that the message is received again until
        SQS's redrive policy or OPTIONS['attempts'] ends it; in the latter case it is deleted."""
        with fresh_connections():
            tried = [*[TRIED_ELSEWHERE] * (message.received - 1), worker]
            try:
                data = _read(message)
                task = task_of(data["task"], data, message.queue, 0)
                result = _result(task, data, TaskResultStatus.RUNNING, tried)
                _check_outcome(perform(type(self), result))
            except Failed:
                return  # final, whatever the settings say; the signal was sent
            except Exception as error:
                if not self._attempts or message.received < self._attempts:
                    raise
                _log.error(
                    "message %s of %s has failed %d times and is deleted: %s: %s",
                    message.id, message.queue, message.received, type(error).__name__, error,
                )  # fmt: skip

    def __str__(self) -> str:
        return "SQS"


def _read(message: Message) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(message.body)
        if {"id", "enqueued_at", "task", "args", "kwargs", "backend"} <= data.keys():
            found: dict[str, Any] = data
            return found
    except (msgspec.DecodeError, AttributeError):
        pass
    raise Invalid(f"message {message.id} of {message.queue} is no task: leave such queues to those who send to them")


def _check_outcome(outcome: Ok | Retry | Wait) -> None:
    """Refuse outcomes that a message cannot have: it can only end or be received again."""
    if isinstance(outcome, Retry):
        raise outcome
    if isinstance(outcome, Wait):
        raise Invalid("a task in SQS cannot wait for an answer: hipq.django.HipqBackend has such tasks")


def _result(task: Any, data: dict[str, Any], status: Any, worker_ids: Sequence[str] = ()) -> Any:
    began = as_django(now()) if worker_ids else None
    return TaskResult(
        task=task,
        id=data["id"],
        status=status,
        enqueued_at=as_django(datetime.fromisoformat(data["enqueued_at"])),
        started_at=began,
        finished_at=None,
        last_attempted_at=began,
        args=data["args"],
        kwargs=data["kwargs"],
        backend=data["backend"],
        errors=[],
        worker_ids=list(worker_ids),
    )
