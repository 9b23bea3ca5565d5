"""Where a test stands in for the network: while a recorder is at work, messages go to it and none is sent.

It counts for the whole process: for every thread, and for the children that are forked meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from hipq.transports.base import Outgoing, Reply


class Recorder(Protocol):
    @property
    def busy(self) -> bool:
        """A handler of its test runs at this moment: of several recorders, this one is meant."""

    @property
    def real(self) -> bool:
        """Its test has asked for messages to be sent."""

    def record(self, method: str, url: str, message: Outgoing) -> Reply | None:
        """Take this instead of the network. `method` is "" for a message on a stream; a request by HTTP has a reply."""


_recorders: list[Recorder] = []


def recorder() -> Recorder | None:
    """Who takes what is sent now; None: it is sent."""
    if not _recorders:
        return None
    chosen = next((one for one in reversed(_recorders) if one.busy), _recorders[-1])
    return None if chosen.real else chosen


@contextmanager
def recording(taker: Recorder) -> Iterator[None]:
    """Until the block ends."""
    _recorders.append(taker)
    try:
        yield
    finally:
        _recorders.remove(taker)
