"""A job in memory. What is stored is a `Row`; what runs is an `Execution` of it, which is another type.

An execution ends once; then it is saved, then forgotten. Each part has one writer: the engine's thread owns the
execution itself and says when nobody wants it any more; whoever runs the code owns the `Run`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from hipq.job import states
from hipq.job.answer import Kept
from hipq.job.model import New, Row
from hipq.job.progress import Reported
from hipq.job.run_result import RunResult
from hipq.job.spec import Spec
from hipq.job.states import ERROR

SENT_MOST: Final = 5
"""The most requests of one run that are remembered."""


class Run(msgspec.Struct, eq=False):
    """What the code of an execution has done so far."""

    started: int = 0
    """When the code began, on the steady clock; 0 = it has not."""
    result: RunResult | None = None
    stopped: int = 0
    """When the code ended, on the steady clock; 0 = it has not."""
    children: list[New] = []
    """Jobs that the code added: they are saved with the result."""
    note: dict[str, Any] | None = None
    """What the job's history is to remember of this run."""
    sent: list[tuple[int, str]] = []
    """The requests that the code has sent: when, on the steady clock, and where to."""
    clock: Callable[[], int] | None = None
    """The steady clock of the process that runs the code."""
    raised: BaseException | None = None
    """What the handler raised, if it ran in this process."""
    trace: Callable[[], str] | None = None
    """Returns the span that the calling code runs in, if it is traced."""
    reported: Reported | None = None
    """The last progress that the code has reported."""
    stored: Reported | None = None
    """The last progress that the engine has stored."""
    beat: bool = False
    """Whether the code has sent a heartbeat since the engine last looked."""
    alive: int = 0
    """When the engine last saw a heartbeat, on the steady clock; 0 = never."""
    tell: Callable[[], None] | None = None
    """In a child process: tells the engine's process of progress and heartbeats."""

    @property
    def is_under_way(self) -> bool:
        return self.started > 0 and not self.stopped


class Abandonment(NamedTuple):
    """Nobody wants the result of an execution any more: its code is to stop, if that is possible."""

    gently: bool = False
    """Whether the code is told to stop and has time to tidy up."""
    until: int = 0
    """When code that still runs counts as stuck, on the steady clock."""


class Execution:
    __slots__ = ("abandoned", "abandonment", "answer", "launched", "limit", "row", "run", "spec")

    def __init__(self, row: Row, spec: Spec, launched: int, answer: Kept | None = None, run: Run | None = None) -> None:
        self.row = row
        """The row as it was claimed, or as a newer lease of the same engine has adopted it."""
        self.spec = spec
        self.launched = launched
        """When the job was launched, on the steady clock."""
        self.answer = answer
        """The answer that the code is to look at, if the job was claimed for that."""
        self.limit = _limit(row, spec)
        """Microseconds that the code may execute, or that may pass until its next heartbeat."""
        self.run = run or Run()
        self.abandoned = False
        self.abandonment: Abandonment | None = None
        """None as long as somebody wants the result."""

    def specify(self, spec: Spec) -> None:
        """Use this spec instead. Called before the code begins, by whoever has found which code it is."""
        self.spec, self.limit = spec, _limit(self.row, spec)

    def ended(self, result: RunResult) -> Execution:
        """The same job, ended by the engine. It is another object, because the code may still be running with this
        one."""
        run = Run(self.run.started, result)
        run.sent = self.run.sent[:]
        return Execution(self.row, self.spec, self.launched, self.answer, run)

    @property
    def kind(self) -> tuple[str, str]:
        """The job's queue and type, which predict best how long it takes."""
        return self.spec.queue, self.spec.name

    def abandon(self, gently: bool = False, until: int = 0) -> None:
        self.abandonment, self.abandoned = Abandonment(gently, until), True

    def is_stuck(self, steady: int) -> bool:
        """Whether an abandoned execution has had its time to stop."""
        return self.abandonment is not None and steady >= self.abandonment.until

    @property
    def until(self) -> int:
        """Until when the code may run, on the steady clock. A heartbeat moves that on, up to the time-out."""
        run = self.run
        return min(max(run.started, run.alive) + self.limit, run.started + round(self.row.timeout * 1e6))

    def overruns(self, steady: int) -> bool:
        """Whether the code has run for longer than it may. A heartbeat since the last look counts as one of this
        moment."""
        if self.run.beat:
            self.run.beat, self.run.alive = False, steady
        return self.run.started > 0 and steady >= self.until

    @property
    def reported(self) -> Reported | None:
        return self.run.reported

    def report(self, reported: Reported) -> None:
        self.run.reported = reported
        if self.run.tell:
            self.run.tell()

    def heartbeat(self) -> None:
        self.run.beat = True
        if self.run.tell:
            self.run.tell()

    def sends(self, where: str) -> None:
        if self.run.clock and len(self.run.sent) < SENT_MOST:
            self.run.sent.append((self.run.clock(), where))

    def traceparent(self) -> str:
        return "" if self.run.trace is None else self.run.trace()

    @property
    def only_decides(self) -> bool:
        """Whether only the retry handler is to be asked: the error is stored already."""
        return self.row.state == ERROR

    @property
    def code(self) -> Callable[..., Any] | None:
        """The code to be called, if that is not the retry handler."""
        match self.row.phase:
            case states.ANSWERED:
                return None if self.answer is None or self.answer.error else self.spec.answered
            case states.CANCELLING:
                return self.spec.cancelled
            case _:
                return self.spec.fn

    @property
    def is_async(self) -> bool:
        if self.row.phase == states.EXECUTING:
            return self.spec.is_async
        return inspect.iscoroutinefunction(self.code)


def _limit(row: Row, spec: Spec) -> int:
    seconds = row.timeout if not spec.run_timeout else min(spec.run_timeout, row.timeout)
    return round(seconds * 1e6)
