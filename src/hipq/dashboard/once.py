"""A form that is sent twice does what it does once: a double click, or a page that is loaded again, must not add a job
twice. Each rendering of a form has a text of its own; what this process has replied to each is remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final

from hipq.dashboard.visit import Reply

KEPT: Final = 10_000
"""Forms that are remembered, the latest."""
LONGEST: Final = 100


class _Sent:
    def __init__(self) -> None:
        self.lock = Lock()
        self.reply: Reply | None = None


class Once:
    """Any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sent: OrderedDict[tuple[str, ...], _Sent] = OrderedDict()

    def reply(self, form: tuple[str, ...], make: Callable[[], Reply]) -> Reply:
        """The reply to this form, as it was the first time. What was refused, or was wrong, may be tried again."""
        with self._lock:
            sent = self._sent.setdefault(form, _Sent())
            while len(self._sent) > KEPT:
                self._sent.popitem(last=False)
        with sent.lock:  # the second click waits for what the first one comes to
            if sent.reply is not None:
                return sent.reply
            reply = make()
            if reply.status < 400:
                sent.reply = reply
            return reply
