"""A warm process that runs batches of one tenant's handlers, one job after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from hipq.errors import CannotRun
from hipq.sandbox.begun import UNWANTED, BegunJobs
from hipq.sandbox.handler import ContextJob, Handler, JobReport, OnEnd, OnStart
from hipq.sandbox.link import ContextReply, Gone, Link
from hipq.sandbox.output import MOST_SPAWNED, Output, escaped
from hipq.sandbox.process import Process
from hipq.sandbox.secrets import Secrets
from hipq.sandbox.settings import ContextSettings
from hipq.sandbox.starting import Spawner
from hipq.sandbox.statuses import TIMED_OUT, TOO_LARGE, checked, from_exit, how

_MOST_LOADED: Final = 100
"""Handlers a context may load before it is replaced."""
_MOST_ERROR: Final = 1000
_SENT: Final = 4000
"""Letters of an error that contexts send: MOST_ERROR of the bootstraps."""
_LEAST_AFTER: Final = 1.0
"""Seconds afterEach may take, even if the last job has used up its time."""


class Context:
    """A context, for one thread at a time, except `kill`."""

    def __init__(self, lang: str, settings: ContextSettings, spawner: Spawner) -> None:
        """Start the process and wait until it is ready. CannotRun says why it cannot start."""
        self._lang, self.settings = lang, settings
        self.loaded: dict[str, tuple[str, int]] = {}
        """Job type -> the id of the handler that is loaded for it, and its number in this context."""
        self.loads = self.ran = 0
        """Handlers that it was given to load, and jobs that it has run."""
        self._retired = False
        since = time.monotonic()
        self._process = Process(lang, settings, spawner)
        self._link = Link(self._process, settings)
        self._greet()
        self.owed = time.monotonic() - since
        """Seconds of start-up that count for the next batch."""

    def _greet(self) -> None:
        output = Output(self.settings.secrets)
        try:
            self._link.ask(b"", b"", self.settings.start_seconds, output)
            self._process.settle()
        except (Gone, OSError, ValueError, KeyError) as error:
            self._process.close()
            output.finish()
            said = " ".join(output.log.split())[-300:] or str(error)
            raise CannotRun(f"a context for {self._lang} does not start: {said}") from None
        except BaseException:
            self._process.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can run another batch."""
        return not self._retired and not self._link.killed

    @property
    def dead(self) -> bool:
        """Whether its process has ended."""
        return self._retired or self._process.ended

    @property
    def secrets(self) -> Secrets:
        return self.settings.secrets

    @property
    def spent(self) -> bool:
        """Whether it has run as many jobs as it may."""
        return self.ran >= self.settings.most_tasks or self.loads >= _MOST_LOADED

    @property
    def kept(self) -> int:
        """Bytes that it uses while it waits for its next batch."""
        return self._process.kept

    def run(
        self, handler: Handler, tasks: Sequence[ContextJob], started: OnStart, ended: OnEnd, jobs: BegunJobs
    ) -> list[ContextJob]:
        """Run a batch, blocking, in the caller's thread. `started` is called as each task begins, `ended` exactly
        once for each that began, as soon as it ends. Returns the tasks that never began; `jobs` knows which have."""
        if not self.alive or not tasks:
            return list(tasks)
        try:
            self._process.thaw()
            left = ContextBatch(self, handler, tasks, started, ended, jobs).run()
            if self._link.mute or self.spent or not self._process.freeze():
                self.retire()
        except BaseException:  # a callback raised: nobody knows what runs in the context now
            self.retire()
            raise
        return left

    def kill(self, why: str = "its context was killed") -> None:
        """Kill the process at once, with all that runs in it; from any thread."""
        self._link.killed = self._link.killed or why
        self._process.kill()

    def retire(self) -> None:
        """End the context. Nothing of it is left when this returns."""
        self._retired = True
        self._process.close()

    def prepare(self, handler: Handler, seconds: float, output: Output) -> ContextReply | None:
        """Load the handler, if it is not loaded, and run its beforeEach. Returns the reply if that fails."""
        known, number = self.loaded.get(handler.type, ("", 0))
        if known != handler.id:
            if known:
                del self.loaded[handler.type]
                self._link.tell(*_part(self._lang, "forget", number))
            self.loads += 1
            reply = self._link.ask(*_load(self._lang, self.loads, handler), seconds, output)
            if not reply.is_ok:
                return reply
            self.loaded[handler.type] = handler.id, self.loads
        if not handler.beforeEach:
            return None
        reply = self.part("begin", handler, seconds, output)
        return None if reply.is_ok else reply

    def execute(self, handler: Handler, task: ContextJob, output: Output, begun: Callable[[], None]) -> ContextReply:
        message = _job(self._lang, self.loaded[handler.type][1], handler, task)
        reply = self._link.ask(*message, task.seconds, output, begun)
        self.ran += 1
        if reply.retire or self._link.mute or (reply.kind == "exited" and self._lang != "shell"):
            self.retire()
        return reply

    def part(self, what: str, handler: Handler, seconds: float, output: Output) -> ContextReply:
        """Run a part of a loaded handler: its beforeEach ("begin") or its afterEach ("end")."""
        return self._link.ask(*_part(self._lang, what, self.loaded[handler.type][1]), seconds, output)


class ContextBatch:
    """One batch in one context, from its first preparation to its last report."""

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
        self._secrets = context.secrets
        self._share = 0.0
        """Each job's share of the time spent for all of them."""

    def run(self) -> list[ContextJob]:
        """Run the batch; returns the tasks that never began."""
        output, since, used = Output(self._secrets), time.monotonic(), self._context.loads
        try:
            wrong = self._context.prepare(self._handler, self._tasks[0].seconds, output)
            failed = _decided(JobReport("", 0), wrong, self._secrets) if wrong else None
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
        why = failed.error or f"it ended with the status {failed.status}"
        error = _short(f"its handler did not get ready: {why}")
        status = failed.status if failed.status >= 400 or failed.status < 200 else 500
        for task in self._tasks:
            self._started(task)
            log = output.log if task is self._tasks[0] else ""
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
            output = Output(self._secrets)
        return left

    def _one(self, task: ContextJob, output: Output, last: bool) -> bool:
        """Run one task; returns whether it began."""
        since, first = 0.0, not self._context.ran
        output.told = task.printed

        def begun() -> None:
            nonlocal since
            since = time.monotonic()
            self._started(task)

        try:
            try:
                reply = self._context.execute(self._handler, task, output, begun)
            finally:
                self._jobs.end(task.name)
            report = _decided(JobReport(task.id, 0), reply, self._secrets)
        except Gone as gone:
            self._context.retire()  # before it is reported, because it may run elsewhere the next moment
            if not since:
                if gone.innocent or not first:
                    self._jobs.end(task.name, has_begun=False)
                    return False
                begun()  # a new context cannot even receive the job: neither would the next
            output.finish(killed=True)
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
            left = max(task.seconds - report.seconds, _LEAST_AFTER)
            reply = self._context.part("end", self._handler, left, output)
            said = _masked(reply.error, self._secrets) or f"status {reply.status}"
            wrong = "" if reply.kind == "done" and reply.status == 200 else said
        except Gone as gone:
            wrong = gone.error
        if wrong:
            self._context.retire()
            output.note(f"afterEach: {_short(wrong)}")
        report.seconds += time.monotonic() - since


def _decided(report: JobReport, reply: ContextReply, secrets: Secrets) -> JobReport:
    """The report of a job, as its context replied."""
    if reply.kind == "exited":
        report.status = from_exit(reply.status)
        report.crashed = 128 < reply.status <= 192
        report.error = f"it {how(reply.status)}" if reply.status else ""
        return report
    report.status, wrong = checked(reply.status)
    report.data = secrets.mask(reply.data)
    report.error = _short(_masked(reply.error, secrets) or wrong)
    return report


def _masked(error: str, secrets: Secrets) -> str:
    """An error, of which a context sends so many of its own letters: that may be a quarter as many of ours."""
    return secrets.mask_text(error, cut=len(error) >= _SENT // 4)


def _short(text: str) -> str:
    """The text, short enough for a table and safe to show."""
    return escaped(text if len(text) <= _MOST_ERROR else text[: _MOST_ERROR - 3] + "...")


# -- messages: a shell cannot read JSON, it gets words, and its sources where its payloads arrive ---------------------
def _load(lang: str, number: int, handler: Handler) -> tuple[bytes, bytes]:
    sources = (handler.before, handler.beforeEach, handler.body, handler.afterEach)
    if lang == "shell":
        encoded = [source.encode() for source in sources]
        return _words("load", number, *map(len, encoded)), b"".join(encoded)
    message = {"do": "load", "handler": number, "type": handler.type}
    message |= dict(zip(("before", "beforeEach", "body", "afterEach"), sources, strict=True))
    return msgspec.json.encode(message) + b"\n", b""


def _job(lang: str, number: int, handler: Handler, task: ContextJob) -> tuple[bytes, bytes]:
    payload = task.payload + b"\n"
    if lang == "shell":
        return _words("job", number, handler.type, task.attempt, len(task.payload), task.id), payload
    message = {"do": "job", "handler": number, "id": task.id, "attempt": task.attempt, "size": len(task.payload)}
    return msgspec.json.encode(message) + b"\n", payload


def _part(lang: str, what: str, number: int) -> tuple[bytes, bytes]:
    """A message about a handler: `what` is begin, end or forget."""
    if lang == "shell":
        return _words(what, number), b""
    return msgspec.json.encode({"do": what, "handler": number}) + b"\n", b""


def _words(*words: object) -> bytes:
    """A line of words; the last may be anything but a line end."""
    return "\t".join(str(word) for word in words).replace("\n", " ").encode("utf-8", "replace") + b"\n"
