"""Jobs that come in one round of the event loop: those of one tenant, type and options are one batch of the journal.

So what a batch costs, when it is written and when it is read, is paid once for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hipq.daemon.written import SMALL, Written
from hipq.journal import Batch

if TYPE_CHECKING:
    from hipq.daemon.ids import Ids

Done = Callable[[int | Exception], None]
"""Is told the first of the numbers that some jobs have, in a row; or what went wrong."""


_log = logging.getLogger("hipq")


class _Group(NamedTuple):
    """Jobs of one tenant, type and options."""

    payloads: list[bytes]
    waiting: list[tuple[int, Done]]
    """Who is to be told, and of how many."""


class Gathered:
    """Lives on one event loop."""

    def __init__(self, written: Written, ids: Ids, now: Callable[[], int]) -> None:
        self._written = written
        self._ids = ids
        self._now = now
        self._groups: dict[tuple[str, str, str], _Group] = {}
        self._size = 0

    def put(
        self, tenant: str, jobtype: str, payloads: Sequence[bytes], options: str, size: int, done: Done
    ) -> None:  # fmt: skip
        """`done` is called on this loop, when they are on disk or cannot be; never before this returns."""
        if self._size and self._size + size > SMALL:
            self._write()
        if not self._groups:
            asyncio.get_running_loop().call_soon(self._write)
        group = self._groups.setdefault((tenant, jobtype, options), _Group([], []))
        group.payloads.extend(payloads)
        group.waiting.append((len(payloads), done))
        self._size += size

    def _write(self) -> None:
        groups, self._groups, self._size = self._groups, {}, 0
        for (tenant, jobtype, options), group in groups.items():
            try:
                first = self._ids.take(tenant, len(group.payloads))
                batch = Batch(tenant, jobtype, first, tuple(group.payloads), self._now(), options)
                self._written.put(batch, partial(_tell, group, first))
            except Exception as error:  # whatever it is, nobody may wait for ever
                _tell(group, 0, error)
        self._written.write_here()


def _tell(group: _Group, first: int, error: Exception | None) -> None:
    for count, done in group.waiting:
        try:
            done(error or first)
        except Exception:  # the others are to hear of it all the same
            _log.exception("what was to be told of jobs in the journal failed")
        first += count
