"""Running one batch in one context, from its first preparation to its last report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from hipq.sandbox.begun import UNWANTED, BegunJobs
from hipq.sandbox.handler import ContextJob, Handler, JobReport, OnEnd, OnStart
from hipq.sandbox.link import ContextReply, Gone
from hipq.sandbox.output import MOST_SPAWNED, Output, escaped
from hipq.sandbox.statuses import TIMED_OUT, TOO_LARGE, checked, from_exit, how

if TYPE_CHECKING:
    from hipq.sandbox.context import Context

_MOST_ERROR: Final = 1000
_LEAST_AFTER: Final = 1.0
"""Seconds afterEach may take, even if the last job has used up its time."""


class ContextBatch:
    def __init__(
        self,
        context: Context,
        handler: Handler,
        tasks: Sequence[ContextJob],
        started: OnStart,
        ended: OnEnd,
        jobs: BegunJobs,
    ) -> None:
        self._context, self._handler, self._tasks, self._jobs = context, handler, list(tasks), jobs
        self._started, self._ended = started, ended
        self._share = 0.0
        """Each job's share of the time spent for all of them."""

    def run(self) -> list[ContextJob]:
        """Run the batch; returns the tasks that never began."""
        output, since, used = Output(), time.monotonic(), self._context.loads
        try:
            wrong = self._context.prepare(self._handler, self._tasks[0].seconds, output)
            failed = _decided(JobReport("", 0), wrong) if wrong else None
            if wrong and wrong.retire:
                self._context.retire()
                if used:  # earlier jobs in this context may be the cause: a new context will tell
                    return self._tasks
        except Gone as gone:
            self._context.retire()
            if gone.innocent or (used and gone.status != TIMED_OUT):
                return self._tasks
            failed = JobReport("", gone.status, error=gone.error, crashed=True)
        self._share = (self._context.owed + time.monotonic() - since) / len(self._tasks)
        self._context.owed = 0.0
        if failed is not None:
            return self._fail_all(failed, output)
        return self._each(output)

    def _fail_all(self, failed: JobReport, output: Output) -> list[ContextJob]:
        """Report a failed preparation to every task: none of them can run."""
        output.finish()
        for task in self._tasks:
            self._started(task)
            error = _short(
                f"its handler did not get ready: {failed.error or f'it ended with the status {failed.status}'}"
            )
            log = output.log if task is self._tasks[0] else ""
            status = failed.status if failed.status >= 400 or failed.status < 200 else 500
            self._ended(JobReport(task.id, status, error=error, log=log, crashed=failed.crashed, seconds=self._share))
        return []

    def _each(self, output: Output) -> list[ContextJob]:
        left: list[ContextJob] = []
        for index, task in enumerate(self._tasks):
            if not self._context.alive or self._context.spent:
                return left + self._tasks[index:]
            if not self._jobs.begin(task.name, partial(self._context.kill, UNWANTED)):
                left.append(task)
                continue
            if not self._one(task, output, last=task is self._tasks[-1]):
                return left + self._tasks[index:]
            output = Output()
        return left

    def _one(self, task: ContextJob, output: Output, last: bool) -> bool:
        """Run one task; returns whether it began."""
        since, first = 0.0, not self._context.ran

        def begun() -> None:
            nonlocal since
            since = time.monotonic()
            self._started(task)

        try:
            try:
                reply = self._context.execute(self._handler, task, output, begun)
            finally:
                self._jobs.end(task.name)
            report = _decided(JobReport(task.id, 0), reply)
        except Gone as gone:
            self._context.retire()  # before it is reported, because it may run elsewhere the next moment
            if not since:
                if gone.innocent or not first:
                    self._jobs.end(task.name, has_begun=False)
                    return False
                begun()  # a new context cannot even receive the job: neither would the next
            report = JobReport(task.id, gone.status, error=_short(gone.error), crashed=True)
        report.seconds = time.monotonic() - since + self._share
        if last and self._handler.afterEach and self._context.alive:
            self._after(task, report, output)
        output.finish()
        report.log, report.spawned = output.log, output.spawned
        if output.too_many and (200 <= report.status < 300 or 400 <= report.status < 500):
            report.status, report.data = TOO_LARGE, b""
            report.error = f"it asked for more than {MOST_SPAWNED:,} jobs, and none of them was added"
        self._ended(report)
        return True

    def _after(self, task: ContextJob, report: JobReport, output: Output) -> None:
        """Run afterEach, whose output and time belong to the last job. It cannot change that job's outcome."""
        since = time.monotonic()
        try:
            reply = self._context.conclude(self._handler, max(task.seconds - report.seconds, _LEAST_AFTER), output)
            wrong = "" if reply.kind == "done" and reply.status == 200 else reply.error or f"status {reply.status}"
        except Gone as gone:
            wrong = gone.error
        if wrong:
            self._context.retire()
            output.note(f"afterEach: {_short(wrong)}")
        report.seconds += time.monotonic() - since


def _decided(report: JobReport, reply: ContextReply) -> JobReport:
    """The report of a job, as its context replied."""
    if reply.kind == "exited":
        report.status = from_exit(reply.status)
        report.crashed = 128 < reply.status <= 192
        report.error = f"it {how(reply.status)}" if reply.status else ""
        return report
    report.status, wrong = checked(reply.status)
    report.data = reply.data
    report.error = _short(reply.error or wrong)
    return report


def _short(text: str) -> str:
    """The text, short enough for a table and safe to show."""
    return escaped(text if len(text) <= _MOST_ERROR else text[: _MOST_ERROR - 3] + "...")
