"""The received messages of one queue: hidden from others while they are handled, then deleted or given back.

A crash anywhere here loses nothing: a message that was not deleted becomes visible again when its hiding time is over.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hipq.errors import HipqError
from hipq.transports.sqs_batch import BATCH, delete, hide, tens
from hipq.waiter.connection import QueueConnection
from hipq.waiter.message import Message
from hipq.waiter.outage import Outage

LONGEST_HIDDEN: Final = 43_200
"""Seconds after receipt at which SQS shows a message again, whatever it is told."""
DELETE_SECONDS: Final = 60.0
"""How long deleting a message is tried. After that the message is received again although its handler has finished."""
LAST_SECONDS: Final = 2.0
"""How long close() waits for the last deletes."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0

_log: Final = logging.getLogger("hipq")


class HeldMessage:
    """A received message that is neither deleted nor given back."""

    __slots__ = ("done", "lost", "message", "receipt", "received", "until")

    def __init__(self, message: Message, received: float, until: float) -> None:
        self.message = message
        self.receipt = message.receipt
        """The newest receipt: if the message was received again meanwhile, only that one is sure to delete it."""
        self.received, self.until = received, until
        """When the message was received, and when others may receive it, on the monotonic clock."""
        self.done = 0.0
        """When the handler finished; 0 = not yet."""
        self.lost = False
        """SQS says that the message is not ours any more."""

    @property
    def group(self) -> str:
        return self.message.group

    @property
    def is_ours(self) -> bool:
        return not self.lost and time.monotonic() < self.until


class HeldMessages:
    def __init__(
        self, connection: QueueConnection, visibility: int, settled: Callable[[HeldMessage, bool], None]
    ) -> None:
        """`settled` is called with each message that was to be deleted, and whether it was."""
        self._connection = connection
        self._visibility = visibility
        self._settled = settled
        self._held: dict[str, HeldMessage] = {}
        self._hiding = threading.Lock()
        """While this lock is held nobody else changes hiding times: a message that was given back must not be hidden
        after that."""
        self._changed = threading.Condition()
        self._deletable: list[HeldMessage] = []
        self._deleting = 0
        self._closing = threading.Event()
        self._hide_trouble = Outage(f"{connection.queue}: hiding messages for longer")
        self._delete_trouble = Outage(f"{connection.queue}: deleting messages")
        self._threads = [
            threading.Thread(target=work, name=f"hipq-waiter-{name}", daemon=True)
            for name, work in (("hide", self._hide_on), ("delete", self._delete_on))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def take(self, messages: Iterable[Message], received: float) -> list[HeldMessage]:
        """Keep new messages and return them. A message that is already here was received again because it was not
        hidden in time: its handler goes on, and the new receipt will delete it."""
        found = []
        with self._changed:
            for message in messages:
                until = received + self._visibility
                known = self._held.get(message.id)
                if known is not None:
                    known.receipt, known.received, known.until, known.lost = message.receipt, received, until, False
                    continue
                self._held[message.id] = held = HeldMessage(message, received, until)
                found.append(held)
        return found

    # -- what becomes of them ---------------------------------------------------------------------------------------
    def delete(self, held: HeldMessage) -> None:
        """Delete the message soon, in a batch with others; `settled` gets the outcome."""
        with self._changed:
            held.done = time.monotonic()
            self._deletable.append(held)
            self._changed.notify_all()

    def give_back(self, some: Sequence[HeldMessage], seconds: float | None = 0.0) -> None:
        """Let others receive these messages after `seconds`; None = when their hiding time is over."""
        with self._changed:
            for one in some:
                self._held.pop(one.message.id, None)
        ours = [one for one in some if one.is_ours]
        if seconds is None or not ours:
            return
        now = time.monotonic()
        for ten in tens([(one.receipt, _allowed(seconds, one, now)) for one in ours]):
            with self._hiding:
                if not self._shown(ten):
                    return  # SQS does not answer: the messages become visible when their hiding time is over

    def _shown(self, ten: Sequence[tuple[str, int]]) -> bool:
        for last in (False, True):
            try:
                with self._connection.errors():
                    again = hide(self._connection.quick, self._connection.url, ten).now
                ten = [ten[index] for index in again]
                if not ten:
                    return True
            except HipqError as error:
                if last:
                    _log.warning("%s: not given back at once, but when their time is over: %s", self._name, error)
                    return False
        return True

    def unfinished(self) -> list[HeldMessage]:
        with self._changed:
            return [one for one in self._held.values() if not one.done]

    def is_settled(self) -> bool:
        """Whether nothing is left to be deleted."""
        with self._changed:
            return not self._deletable and not self._deleting

    def close(self) -> None:
        """Try the outstanding deletes once more, for a moment."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        if self._threads[1].is_alive():
            self._threads[1].join(LAST_SECONDS)

    @property
    def _name(self) -> str:
        return self._connection.queue

    # -- hidden for longer ------------------------------------------------------------------------------------------
    def _hide_on(self) -> None:
        """Hide messages for longer when half their hiding time is over, so that tries are left if one fails."""
        while not self._closing.wait(min(self._visibility / 8, 60.0)):
            try:
                self.hide_longer(time.monotonic())
            except Exception:  # whatever it is, the other messages must stay hidden
                _log.exception("%s: messages could not be hidden for longer", self._name)

    def hide_longer(self, now: float) -> None:
        with self._changed:
            near = [one for one in self._held.values() if not one.lost and one.until - now <= self._visibility / 2]
        for ten in tens(near):
            with self._hiding:
                self._hide(ten)

    def _hide(self, ten: Sequence[HeldMessage]) -> None:
        with self._changed:  # since the look, some may have been given back or deleted
            ten = [one for one in ten if self._held.get(one.message.id) is one]
        began = time.monotonic()
        pairs = [(one.receipt, _allowed(self._visibility, one, began)) for one in ten]
        worth = [n for n, (_, seconds) in enumerate(pairs) if began + seconds > ten[n].until]
        ten, pairs = [ten[n] for n in worth], [pairs[n] for n in worth]
        if not ten:
            return
        try:
            with self._connection.errors():
                refused = hide(self._connection.quick, self._connection.url, pairs)
        except HipqError as error:
            self._hide_trouble.down(str(error))
            return
        self._hide_trouble.up()
        for index, (one, (_, seconds)) in enumerate(zip(ten, pairs, strict=True)):
            if index in refused.ever:
                self._lose(one)
            elif index not in refused.now:
                one.until = began + seconds

    def _lose(self, one: HeldMessage) -> None:
        with self._changed:
            gone = self._held.get(one.message.id) is not one
            one.lost = not gone
        if not gone and not one.done:
            _log.warning("%s: message %s is somebody else's now, while its handler runs", self._name, one.message.id)

    # -- deleted ----------------------------------------------------------------------------------------------------
    def _delete_on(self) -> None:
        """Delete what is there, up to ten at a time: a single message when there is little to do, full batches when
        there is much."""
        pause = FIRST_PAUSE
        while ten := self._next_ten():
            again = self._delete(ten)
            with self._changed:
                self._deletable += again
                self._deleting = 0
            if again:
                self._closing.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE) if again else FIRST_PAUSE

    def _next_ten(self) -> list[HeldMessage]:
        with self._changed:
            self._changed.wait_for(lambda: self._deletable or self._closing.is_set())
            ten, self._deletable = self._deletable[:BATCH], self._deletable[BATCH:]
            self._deleting = len(ten)
            return ten

    def _delete(self, ten: Sequence[HeldMessage]) -> list[HeldMessage]:
        """Delete up to ten messages; returns those to try again."""
        why = "SQS did not say why"
        try:
            with self._connection.errors():
                refused = delete(self._connection.quick, self._connection.url, [one.receipt for one in ten])
            left, void = refused.now, refused.ever
            self._delete_trouble.up()
        except HipqError as error:
            self._delete_trouble.down(str(error))
            left, void, why = list(range(len(ten))), [], str(error)
        except Exception as error:  # a bug, here or in boto3: messages that were handled must still be settled
            _log.exception("%s: messages could not be deleted", self._name)
            left, void, why = list(range(len(ten))), [], type(error).__name__
        again = []
        for index, one in enumerate(ten):
            if index in left and time.monotonic() - one.done < DELETE_SECONDS and not self._closing.is_set():
                again.append(one)
                continue
            if index in left or index in void:
                reason = why if index in left else "its time was over, and it is somebody else's"
                _log.warning("%s: message %s was handled and comes again: %s", self._name, one.message.id, reason)
            with self._changed:
                self._held.pop(one.message.id, None)
            try:
                self._settled(one, index not in left and index not in void)
            except Exception:  # this thread deletes for all and must not end
                _log.exception("%s: message %s could not be settled", self._name, one.message.id)
        return again


def _allowed(seconds: float, one: HeldMessage, now: float) -> int:
    """How long SQS still lets this message be hidden: at most what is left of its twelve hours."""
    return max(0, min(math.ceil(seconds), math.floor(LONGEST_HIDDEN - (now - one.received)) - 1))
