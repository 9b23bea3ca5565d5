"""A test's stand-in for the network: while a recorder is active it gets the messages, and none is sent.

A recorder is active for the whole process: for every thread, and for children that are forked meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from hipq.transports.base import Outgoing, Reply


class Recorder(Protocol):
    @property
    def busy(self) -> bool:
        """Whether a handler of the recorder's test runs at this moment: of several recorders, that one gets the
        message."""

    @property
    def real(self) -> bool:
        """Whether the test has asked for messages to be sent for real."""

    def record(self, method: str, url: str, message: Outgoing) -> Reply | None:
        """Record a message instead of sending it. `method` is "" for a message on a stream; an HTTP request gets a
        reply."""


_recorders: list[Recorder] = []


def recorder() -> Recorder | None:
    """The recorder that gets messages now; None: they are sent."""
    if not _recorders:
        return None
    chosen = next((one for one in reversed(_recorders) if one.busy), _recorders[-1])
    return None if chosen.real else chosen


@contextmanager
def recording(taker: Recorder) -> Iterator[None]:
    """Make this recorder active until the block ends."""
    _recorders.append(taker)
    try:
        yield
    finally:
        _recorders.remove(taker)
