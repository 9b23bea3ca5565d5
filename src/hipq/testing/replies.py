"""The outside world of a test: what it answers to the jobs that wait for it, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from hipq.app import Hipq
from hipq.errors import Invalid, shown
from hipq.executors.execution import Execution
from hipq.job.names import whole
from hipq.job.run_result import Waits
from hipq.job.view import Job
from hipq.job.when import later, seconds
from hipq.job_type import JobType


@dataclass(frozen=True)
class Reply:
    """One answer to a job that waits."""

    data: Any = None
    after: float | timedelta = 0.0
    """How long after the job began to wait it comes,"""
    error: bool = False
    """whether it says that the work failed,"""
    times: int = 1
    """how often it is delivered: a second time it is a duplicate,"""
    early: bool = False
    """and whether it is there before the job has begun to wait: its handler has sent the request, and not returned."""

    def __post_init__(self) -> None:
        seconds(self.after, "after")
        whole(self.times, "times", 1, 1_000)
        if self.early and self.after:
            raise Invalid("a reply is early, or comes after some time, not both")


Replying = Callable[[Job[Any]], Any]
"""Says what a job is answered: data, a Reply or a list of them; None = nothing."""


@dataclass(frozen=True)
class _Letter:
    app: Hipq
    queue: str
    job_type: str
    key: str
    attempt: int
    reply: Reply
    answer_id: str

    def deliver(self) -> None:
        for _ in range(self.reply.times):
            self.app.answer(
                self.queue, self.job_type, self.key, self.reply.data,
                answer_id=self.answer_id, error=self.reply.error, attempt=self.attempt,
            )  # fmt: skip


class Replies:
    def __init__(self) -> None:
        self._says: dict[JobType, Callable[[Job[Any]], list[Reply]]] = {}
        self._letters: list[tuple[int, int, _Letter]] = []
        self._numbers = count(1)
        self._name = uuid4().hex[:8]  # a database may remember the answers of an earlier test

    def say(self, job_type: JobType, says: Any, **options: Any) -> None:
        """From now on. The options are for data that is not in a Reply."""
        Reply(**options)  # refused now, not when it is used
        said: Replying = says if callable(says) else lambda _job: says
        self._says[job_type] = lambda job: _replies(said(job), options)

    def asked(self, job_type: JobType, execution: Execution, now: int) -> None:
        """A job has sent its request, and is about to wait."""
        if not isinstance(execution.run.result, Waits) or job_type not in self._says:
            return
        row = replace(execution.row, wait_key=execution.run.result.key)
        for reply in self._says[job_type](Job(row, execution.spec)):
            number = next(self._numbers)
            letter = _Letter(
                job_type.queue.app, job_type.queue.name, row.job_type, row.wait_key or row.job_key, row.attempt, reply,
                f"{self._name}-{number}",
            )  # fmt: skip
            if reply.early:
                letter.deliver()
            else:
                heappush(self._letters, (later(now, seconds(reply.after, "after")), number, letter))

    @property
    def next(self) -> int:
        """When the next one comes; 0 = none is on its way."""
        return self._letters[0][0] if self._letters else 0

    def deliver(self, now: int) -> bool:
        """Those whose time has come; whether there were any."""
        found = False
        while self._letters and self._letters[0][0] <= now:
            heappop(self._letters)[2].deliver()
            found = True
        return found


def _replies(said: Any, options: dict[str, Any]) -> list[Reply]:
    if said is None:
        return []
    if isinstance(said, list) and any(isinstance(one, Reply) for one in said):
        if not all(isinstance(one, Reply) for one in said):
            raise Invalid(f"a list of replies has a Reply(...) for each, not {shown(said)}")
        return said
    return [said if isinstance(said, Reply) else Reply(said, **options)]
