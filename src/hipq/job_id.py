"""`JobId`: what adding a job returns."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic

from hipq.in_thread import awaitable
from hipq.job.progress import JobProgress
from hipq.job.typevars import R

if TYPE_CHECKING:
    from hipq.app import Hipq


class JobId(int, Generic[R]):
    """The id of a job: an int wherever one is wanted, and a handle on the job. Pickled or copied, it is a plain int."""

    _app: Hipq

    @classmethod
    def of(cls, app: Hipq, number: int) -> JobId[R]:
        made = cls(number)
        made._app = app
        return made

    @property
    def status(self) -> str:
        """The state of the job at this moment: initial, running, error, retry or final."""
        return self._app.job(self).state

    @property
    def progress(self) -> JobProgress:
        """How far the job has come, as its handler says; see `Job.progress`."""
        return self._app.job(self).progress

    def result(self, timeout: float | timedelta | None = None) -> R:
        """The result of the job, once it has ended; see `Hipq.result`."""
        found: R = self._app.result(self, timeout)
        return found

    async def aresult(self, timeout: float | timedelta | None = None) -> R:
        """`result` for async code; see `Hipq.aresult`."""
        found: R = await self._app.aresult(self, timeout)
        return found

    def cancel(self, reason: str = "cancelled") -> None:
        """End the job, if it is not final; see `Hipq.cancel`."""
        self._app.cancel(self, reason)

    acancel = awaitable(cancel)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> int:
        return int(self)
