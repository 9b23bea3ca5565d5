"""The messages of one queue that are in hand: hidden from others for as long as it takes, then deleted or given back.

A crash anywhere here loses nothing: what is not deleted is seen by others again when its time is over.
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
"""Seconds from when it was given out after which SQS shows a message again, whatever it is told."""
DELETE_SECONDS: Final = 60.0
"""How long deleting is tried. After that the message comes again, though its handler was through."""
LAST_SECONDS: Final = 2.0
"""How long the last deletes are waited for when nobody wants to wait any more."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0

_log: Final = logging.getLogger("hipq")


class HeldMessage:
    """A message in hand: given out to us, and neither deleted nor given back."""

    __slots__ = ("came", "done", "lost", "message", "receipt", "until")

    def __init__(self, message: Message, came: float, until: float) -> None:
        self.message = message
        self.receipt = message.receipt
        """The newest one, if it was given out to us again meanwhile: only that one deletes it for sure."""
        self.came, self.until = came, until
        """When it was given out, and when others may have it, on the monotonic clock."""
        self.done = 0.0
        """When its handler was through; 0 = it is not."""
        self.lost = False
        """SQS says that it is not ours any more."""

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
        """`settled` is told of each message that was to be deleted whether it is."""
        self._connection = connection
        self._visibility = visibility
        self._settled = settled
        self._held: dict[str, HeldMessage] = {}
        self._hiding = threading.Lock()
        """While it is held no message's time is changed by others: one given back must not be hidden after that."""
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

    def take(self, messages: Iterable[Message], came: float) -> list[HeldMessage]:
        """Those of them that are new here. One that is here already was shown to us again since it was not hidden in
        time: its handler goes on, and the new receipt will delete it."""
        found = []
        with self._changed:
            for message in messages:
                until = came + self._visibility
                known = self._held.get(message.id)
                if known is not None:
                    known.receipt, known.came, known.until, known.lost = message.receipt, came, until, False
                    continue
                self._held[message.id] = held = HeldMessage(message, came, until)
                found.append(held)
        return found

    # -- what becomes of them ---------------------------------------------------------------------------------------
    def delete(self, held: HeldMessage) -> None:
        """Soon, together with others; `settled` is told."""
        with self._changed:
            held.done = time.monotonic()
            self._deletable.append(held)
            self._changed.notify_all()

    def give_back(self, some: Sequence[HeldMessage], seconds: float | None = 0.0) -> None:
        """Let others have them after so long; None = when the time they are hidden for is over."""
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
                    return  # nobody answers: they are seen when their time is over

    def _shown(self, ten: Sequence[tuple[str, int]]) -> bool:
        for last in (False, True):
            try:
                with self._connection.errors():
                    again = hide(self._connection.quick, self._connection.url, ten).now
                ten = [ten[place] for place in again]
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
        """Nothing is left to be deleted."""
        with self._changed:
            return not self._deletable and not self._deleting

    def close(self) -> None:
        """What is to be deleted is tried once more, and waited for a moment."""
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
        """Those whose time is half over, so that there are tries left if one fails."""
        while not self._closing.wait(min(self._visibility / 8, 60.0)):
            try:
                self.hide_longer(time.monotonic())
            except Exception:  # whatever it is, the others must stay hidden
                _log.exception("%s: messages could not be hidden for longer", self._name)

    def hide_longer(self, now: float) -> None:
        with self._changed:
            near = [one for one in self._held.values() if not one.lost and one.until - now <= self._visibility / 2]
        for ten in tens(near):
            with self._hiding:
                self._hide(ten)

    def _hide(self, ten: Sequence[HeldMessage]) -> None:
        with self._changed:  # since we looked, some may have been given back or deleted
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
        for place, (one, (_, seconds)) in enumerate(zip(ten, pairs, strict=True)):
            if place in refused.ever:
                self._lose(one)
            elif place not in refused.now:
                one.until = began + seconds

    def _lose(self, one: HeldMessage) -> None:
        with self._changed:
            gone = self._held.get(one.message.id) is not one
            one.lost = not gone
        if not gone and not one.done:
            _log.warning("%s: message %s is somebody else's now, while its handler runs", self._name, one.message.id)

    # -- deleted ----------------------------------------------------------------------------------------------------
    def _delete_on(self) -> None:
        """Whatever is there, up to ten: one alone when there is little to do, and full batches when there is much."""
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
        """Those that are to be tried again."""
        why = "SQS did not say why"
        try:
            with self._connection.errors():
                refused = delete(self._connection.quick, self._connection.url, [one.receipt for one in ten])
            left, void = refused.now, refused.ever
            self._delete_trouble.up()
        except HipqError as error:
            self._delete_trouble.down(str(error))
            left, void, why = list(range(len(ten))), [], str(error)
        except Exception as error:  # a bug, here or in the client library: what is handled already must still settle
            _log.exception("%s: messages could not be deleted", self._name)
            left, void, why = list(range(len(ten))), [], type(error).__name__
        again = []
        for place, one in enumerate(ten):
            if place in left and time.monotonic() - one.done < DELETE_SECONDS and not self._closing.is_set():
                again.append(one)
                continue
            if place in left or place in void:
                reason = why if place in left else "its time was over, and it is somebody else's"
                _log.warning("%s: message %s was handled and comes again: %s", self._name, one.message.id, reason)
            with self._changed:
                self._held.pop(one.message.id, None)
            try:
                self._settled(one, place not in left and place not in void)
            except Exception:  # it must not end this thread, which deletes for all
                _log.exception("%s: message %s could not be settled", self._name, one.message.id)
        return again


def _allowed(seconds: float, one: HeldMessage, now: float) -> int:
    """So long a message can be hidden from now on: SQS refuses more than there is left of its twelve hours."""
    return max(0, min(math.ceil(seconds), math.floor(LONGEST_HIDDEN - (now - one.came)) - 1))
