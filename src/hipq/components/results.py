"""The results: how jobs ended, and what they returned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from hipq.errors import Invalid, shown
from hipq.job.states import FINAL
from hipq.stores.filters import Filter

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon
    from hipq.job.model import Row

_PAGE = 1000


class Result(msgspec.Struct, frozen=True):
    code: str
    """Why the job stopped: ok, failed, retry or error."""
    exitcode: int
    """1xx retry, 2xx ok, 4xx failed, 5xx error."""
    data: bytes
    """What the job returned: 16 MB at most."""


class Results:
    """Of jobs that are done, for as long as they are kept."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def get(self, job_id: str) -> Result | None:
        """How a job ended; None if the job is not done, or not known."""
        row = self._daemon.store.get(_number(job_id))
        return None if row is None or row.state != FINAL else self._result(row)

    def exitcodes(self, tenant: str) -> Iterator[tuple[str, int]]:
        """Job id and exit code of each job of a tenant that is done, in the order of their ids."""
        wanted = Filter(self._daemon.queue.number, tenant=tenant, state=FINAL, limit=_PAGE)
        while rows := self._daemon.store.find(wanted, brief=True):
            yield from ((str(row.id), row.exitcode) for row in rows)
            wanted = wanted._replace(after=rows[-1].id)

    def _result(self, row: Row) -> Result:
        return Result(row.code, row.exitcode, self._daemon.jobs.result(row))


def _number(job_id: str) -> int:
    if not job_id.isdecimal():
        raise Invalid(f"the id of a job is a number in a string, not {shown(job_id)}")
    return int(job_id)
