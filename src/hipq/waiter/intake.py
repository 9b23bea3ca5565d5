"""One queue: its messages are received, given to the handler threads, and settled afterwards.

    receive -> handle -> delete

A crash between any two of these loses nothing: a message that was not deleted is received again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from hipq.errors import HipqError, Invalid
from hipq.job.names import whole
from hipq.job.when import seconds
from hipq.transports.sqs_batch import BATCH
from hipq.waiter.connection import QueueConnection
from hipq.waiter.groups import Groups
from hipq.waiter.handler_threads import HandlerTask, HandlerThreads
from hipq.waiter.held_messages import LONGEST_HIDDEN, HeldMessage, HeldMessages
from hipq.waiter.message import ASKED_FOR, Message, incoming

Retry = float | timedelta | Callable[[Message], float | None]
"""Seconds until a message whose handler raised is received again, or a function that says so; None = when its hiding
time is over."""

_log: Final = logging.getLogger("hipq")


@dataclass(frozen=True, slots=True)
class Handling:
    """The arguments of `waiter.handle`."""

    handler: Callable[[Message], Any]
    visibility: int | None
    """Seconds a message is hidden; None = as the queue is set."""
    retry: float | Callable[[Message], float | None] | None

    @classmethod
    def of(cls, handler: Callable[[Message], Any], visibility: int | None, retry: Retry | None) -> Handling:
        if not callable(handler):
            raise Invalid(f"a handler must be a function, not {type(handler).__name__}")
        if visibility is not None:
            whole(visibility, "visibility", 1, LONGEST_HIDDEN)
        if retry is not None and not callable(retry):
            retry = seconds(retry, "retry")
        return cls(handler, visibility, retry)


class Intake:
    def __init__(self, connection: QueueConnection, handling: Handling, threads: HandlerThreads, wait: int) -> None:
        self._connection = connection
        self.name = connection.queue
        self._handling = handling
        self._handler = _called(handling.handler)
        self._threads = threads
        self._wait = wait
        self._visibility = handling.visibility or connection.visibility
        self._held = HeldMessages(connection, self._visibility, self._deleted)
        self._order = threading.Lock()
        self._groups: Groups[HeldMessage] | None = Groups() if self.name.endswith(".fifo") else None
        """The order of a FIFO queue. In a standard queue messages may have a group, too, but no order."""
        self._receiver = threading.Thread(target=self._receive_on, name="hipq-waiter-receive", daemon=True)
        self.counts: Counter[str] = Counter()
        """Counts of messages: handled, failed, given back, lost."""

    # -- coming -----------------------------------------------------------------------------------------------------
    def start(self) -> None:
        self._held.start()
        self._receiver.start()

    def _receive_on(self) -> None:
        while room := self._threads.room():
            try:
                self._begin(*self._receive(min(BATCH, room)))
            except HipqError as error:
                self._threads.stopping.wait(self._connection.outage.down(str(error)))
                continue
            except Exception as error:  # a bug, here or in boto3: it is logged, and the queue goes on
                _log.exception("%s: receiving failed", self.name)
                self._threads.stopping.wait(self._connection.outage.down(type(error).__name__))
                continue

    def _receive(self, most: int) -> tuple[list[Message], float]:
        once = {"ReceiveRequestAttemptId": uuid4().hex} if self._groups is not None else {}
        with self._connection.errors():
            answer = self._connection.patient.receive_message(
                QueueUrl=self._connection.url,
                MaxNumberOfMessages=most,
                WaitTimeSeconds=self._wait,
                VisibilityTimeout=self._visibility,
                AttributeNames=list(ASKED_FOR),
                MessageAttributeNames=["All"],
                **once,
            )
        self._connection.outage.up()
        return [incoming(one, self.name) for one in answer.get("Messages", ())], time.monotonic()

    def _begin(self, messages: Sequence[Message], received: float) -> None:
        held = self._held.take(messages, received)
        if self._groups is not None:
            with self._order:
                held = self._groups.add(held)
        self._launch(held)

    def _launch(self, some: Sequence[HeldMessage]) -> None:
        try:
            if some and not self._threads.launch([HandlerTask(one, self._handle) for one in some]):
                self.give_back(some)  # the consumer is stopping
        # no thread can be started: if the messages were kept here, they would be hidden from everybody for hours
        except RuntimeError:
            for one in some:
                self._not_done(one, None)
            raise

    # -- handled ----------------------------------------------------------------------------------------------------
    def _handle(self, held: HeldMessage) -> None:
        """Handle one message, in a handler thread, which must survive whatever a handler does."""
        if not held.is_ours:  # the message waited here for too long, and another consumer may have begun with it
            self.counts["lost"] += 1
            self._not_done(held, None)
            return
        try:
            self._handler(held.message)
        except BaseException as error:
            self._failed(held, error)
        else:
            self.counts["handled"] += 1
            _log.debug("%s: handled message %s", self.name, held.message.id)
            # after the handler: a crash here makes SQS deliver the message again, and loses nothing
            self._held.delete(held)

    def _failed(self, held: HeldMessage, error: BaseException) -> None:
        self.counts["failed"] += 1
        said = "%s: the handler of message %s raised, at try %s; it comes again"
        _log.warning(said, self.name, held.message.id, held.message.received, exc_info=error)
        self._not_done(held, self._pause(held.message))

    def _pause(self, message: Message) -> float | None:
        retry = self._handling.retry
        if not callable(retry):
            return retry
        try:
            pause = retry(message)
            return None if pause is None else seconds(pause, "retry")
        except Exception:  # then the message is received again as if there were no such function
            _log.exception("%s: retry= raised", self.name)
            return None

    def _not_done(self, held: HeldMessage, seconds: float | None) -> None:
        behind: list[HeldMessage] = []
        if self._groups is not None:
            with self._order:
                behind = self._groups.failed(held)
        self.give_back(behind)
        self._held.give_back([held], seconds)

    def _deleted(self, held: HeldMessage, is_deleted: bool) -> None:
        """Start the next message of the group. Not before the delete: after a crash this message would be received
        behind it."""
        if self._groups is None:
            return
        with self._order:
            following = self._groups.done(held) if is_deleted else []
            behind = [] if is_deleted else self._groups.failed(held)
        self.give_back(behind)
        self._launch(following)

    # -- stopping ---------------------------------------------------------------------------------------------------
    def give_back(self, some: Sequence[HeldMessage]) -> None:
        """Give back messages that no handler has begun, so that others may receive them at once."""
        if some:
            self.counts["given back"] += len(some)
            self._held.give_back(some)

    def stop(self, unstarted: Sequence[HeldMessage]) -> None:
        """Stop receiving, and give back the messages that no handler has begun."""
        with self._order:
            waiting = self._groups.waiting() if self._groups is not None else []
        self.give_back([*unstarted, *waiting])

    @property
    def is_through(self) -> bool:
        """Whether nothing more is received and every handled message is deleted. Handlers may still run."""
        return not self._receiver.is_alive() and self._held.is_settled()

    def give_up(self) -> None:
        """Give back the messages that handlers still work on, too."""
        self.give_back(self._held.unfinished())

    def close(self) -> None:
        self._held.close()


def _called(handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
    if not inspect.iscoroutinefunction(handler):
        return handler
    return lambda message: asyncio.run(handler(message))
