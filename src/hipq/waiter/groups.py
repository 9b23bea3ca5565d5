"""The order of FIFO queues: of each group one message at a time, and none past one that failed. Pure.

SQS gives out several messages of a group together. It keeps back the rest of the group until none of these is with
anybody, so what is here is all there is of it.
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
    """Of each group that is here: the one under way, and those behind it."""

    def came(self, some: Sequence[G]) -> list[G]:
        """Those of them that may start at once."""
        first = []
        for one in some:
            line = self.setdefault(one.group, deque())
            line.append(one)
            if len(line) == 1:
                first.append(one)
        return first

    def done(self, one: G) -> list[G]:
        """It is deleted: the next of its group may start."""
        line = self[one.group]
        line.popleft()
        if line:
            return [line[0]]
        del self[one.group]
        return []

    def failed(self, one: G) -> list[G]:
        """It will come again: those behind it, which must not start before it does."""
        return list(self.pop(one.group))[1:]

    def waiting(self) -> list[G]:
        """Those that are not under way, which are forgotten."""
        found = []
        for line in self.values():
            while len(line) > 1:
                found.append(line.pop())
        return found
