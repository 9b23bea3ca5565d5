"""`app.result` in a test: nobody works beside it, so while it waits what is due runs, and no time passes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hipq.answers.results import Results
from hipq.app import Hipq
from hipq.errors import JobFailed
from hipq.job.model import Row
from hipq.job.states import FINAL
from hipq.job.view import Job


class ResultsNow(Results):
    def __init__(self, app: Hipq, work: Callable[[], object], awork: Callable[[], Awaitable[object]]) -> None:
        self._app = app
        self._work = work
        self._awork = awork

    def close(self) -> None: ...

    def of(self, row: Row, seconds: float | None) -> Any:  # noqa: ARG002
        if row.state != FINAL:
            self._work()
        return self._result(row)

    async def aof(self, row: Row, seconds: float | None) -> Any:  # noqa: ARG002
        if row.state != FINAL:
            await self._awork()
        return self._result(row)

    def _result(self, before: Row) -> Any:
        job: Job[Any] = Job(self._app.store.get(before.id) or before)
        if job.state != FINAL:
            raise TimeoutError(f"job {job.id} has not ended, and waiting for it lets no time pass: advance(...) does")
        if job.code != "ok":
            raise JobFailed(job)
        return job.result
