"""The order of FIFO queues: one message of a group at a time, and none past a failed one. Pure.

SQS hands out several messages of a group together and keeps the rest of the group back until none of them is
with a consumer. So the messages here are all that matter for the group's order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Grouped(Protocol):
    @property
    def group(self) -> str: ...


G = TypeVar("G", bound=Grouped)


class Groups(dict[str, deque[G]]):
    """For each group, the message in work and the messages behind it."""

    def add(self, some: Sequence[G]) -> list[G]:
        """Add messages; returns those that may start at once."""
        first = []
        for one in some:
            messages = self.setdefault(one.group, deque())
            messages.append(one)
            if len(messages) == 1:
                first.append(one)
        return first

    def done(self, one: G) -> list[G]:
        """Remove a deleted message; returns the next of its group, which may start now."""
        messages = self[one.group]
        messages.popleft()
        if messages:
            return [messages[0]]
        del self[one.group]
        return []

    def failed(self, one: G) -> list[G]:
        """Remove a failed message, which will be received again, with the messages behind it, which must not start
        before it; returns the latter."""
        return list(self.pop(one.group))[1:]

    def waiting(self) -> list[G]:
        """Remove and return the messages that have not started."""
        found = []
        for messages in self.values():
            while len(messages) > 1:
                found.append(messages.pop())
        return found
