"""How a run ended, as plain data: what a worker thread, a task or a child process hands back to the engine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

import msgspec

from hipq.errors import Invalid, shown
from hipq.job import names, payload
from hipq.job.fault import Fault, FaultKind, clean
from hipq.job.outcome import UNSET, Failed, Ok, Progress, Retry, ServiceError, Wait
from hipq.job.when import later, moment, seconds


class Succeeded(msgspec.Struct, frozen=True, tag=True, gc=False):
    result: str
    exitcode: int = 200


class FailedRun(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The handler said Failed: final at once."""

    fault: Fault
    exitcode: int = 400


class Rerun(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The job is to run again: at a moment, or after a delay that begins when this is saved."""

    fault: Fault
    exitcode: int = 100
    delay: float = 0.0
    at: int = 0
    data: str = ""

    def when(self, now: int) -> int:
        return self.at or later(now, self.delay)


Chosen = Succeeded | FailedRun | Rerun
"""The outcomes that a user may choose for a time-out."""


class Waits(msgspec.Struct, frozen=True, tag=True, gc=False):
    timeout: float = 0.0
    """Seconds from now; 0 = the job's own time-out, counted from its launch."""
    key: str = ""
    heartbeat: float = 0.0
    on_timeout: Chosen | None = None
    is_answer_read: bool = False
    """Whether an engine is to look at the answer, although the job's type has no answer handler."""


class Progressed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer handler has looked at its answer, and the job goes on waiting."""

    extend: float = 0.0


class AnswerHandlerFailed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer handler raised: the answer stays the job's, and is looked at again."""

    fault: Fault


class CancelHandled(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The cancel handler has run. What it raised is recorded and changes nothing."""

    fault: Fault | None = None


class Edits(msgspec.Struct, frozen=True, gc=False):
    """What a retry handler changed in its copy of a job; None = it left that field alone."""

    data: str | None = None
    priority: int | None = None
    at: int | None = None
    """The scheduled_run_time it set, in microseconds."""


class Errored(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The job failed, and its retry handler has not been asked."""

    fault: Fault
    exitcode: int = 500
    rest: float = 0.0
    """Seconds before which the job must not be tried again."""


class Decided(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The job failed, and its retry handler has decided: `again`, or None to give up."""

    fault: Fault
    exitcode: int = 500
    again: Rerun | None = None
    edits: Edits | None = None
    """What the retry handler changed in its copy of the job."""


class Crashed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The process that ran the job died."""

    fault: Fault
    exitcode: int = 500
    own: bool = True
    """Whether only this job can have killed the process: no other job ran in it before."""


class GivenBack(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The job did not run to its end, through no fault of its own."""

    reason: str
    started: bool


RunResult = Chosen | Waits | Progressed | Errored | Decided | AnswerHandlerFailed | CancelHandled | Crashed | GivenBack


class Forms(Protocol):
    """Turns what a handler returns into JSON."""

    def dump(self, data: Any, what: str) -> str: ...

    def dump_result(self, result: Any) -> str: ...


def again(retry: Retry, forms: Forms) -> Rerun:
    data = "" if retry.data is UNSET else forms.dump(retry.data, "Retry's data")
    fault = Fault(FaultKind.RETRY, clean(retry.reason))
    if retry.at is not None:
        return Rerun(fault, retry.exitcode, at=moment(retry.at, "Retry's at"), data=data)
    return Rerun(fault, retry.exitcode, delay=seconds(retry.delay or 0, "Retry's delay"), data=data)


def ending_of(value: Any, forms: Forms) -> RunResult:
    """The result for what a handler returned or raised. A result that cannot be stored is an error like any other."""
    try:
        match value:
            case None:
                return Succeeded("null")
            case Ok():
                return Succeeded(forms.dump_result(value.result), value.exitcode)
            case Failed():
                return FailedRun(Fault(FaultKind.FAILED, clean(_reason(value.reason))), value.exitcode)
            case Retry() if value.delay is None and value.at is None and value.data is UNSET:
                return Errored(Fault(FaultKind.RETRY, clean(value.reason)), value.exitcode)
            case Retry():
                return again(value, forms)
            case Wait():
                return _waits(value, forms)
            case Progress():
                raise Invalid("Progress is what an answer handler returns; a job that goes on waiting returns Wait")
            case ServiceError():
                rest = 0.0 if value.retry_after is None else seconds(value.retry_after, "retry_after")
                return Errored(Fault.of(value), value.exitcode, rest)
            case BaseException():
                return Errored(Fault.of(value))
            case _:
                return Succeeded(forms.dump_result(value))
    except Exception as error:  # whatever is wrong with it must not cost the thread that runs it
        return Errored(Fault.of(error))


def _reason(given: Any) -> str:
    """The reason of a failure as a text: whatever it is, it must not raise an error after which the job is tried
    again."""
    if isinstance(given, str):
        return given
    try:
        return payload.encode(given)
    except Invalid:
        return str(given)


def _waits(wait: Wait, forms: Forms) -> Waits:
    chosen = ending_of(wait.on_timeout, forms) if isinstance(wait.on_timeout, Ok | Failed | Retry) else None
    if isinstance(chosen, Errored) and chosen.exitcode >= 500:
        raise Invalid(f"Wait's on_timeout: {chosen.fault.message}")
    if not isinstance(chosen, Chosen) and wait.on_timeout is not None:
        raise Invalid(f"Wait's on_timeout must be Ok, Failed or Retry with a time, not {shown(wait.on_timeout)}")
    return Waits(
        _seconds(wait.timeout, "Wait's timeout"),
        "" if wait.key is None else names.key(wait.key),
        _seconds(wait.heartbeat, "Wait's heartbeat"),
        chosen if isinstance(chosen, Chosen) else None,
    )


def _seconds(value: float | timedelta | None, name: str) -> float:
    return 0.0 if value is None else seconds(value, name, least=0.001)


def answer_ending(value: Any, forms: Forms) -> RunResult:
    """The result for what an answer handler returned or raised. If the handler failed, it is called again: the answer
    is not lost, and the request is not sent again. A Retry is no failure."""
    try:
        if isinstance(value, Progress):
            return Progressed(_seconds(value.extend, "Progress's extend"))
    except Invalid as error:
        return AnswerHandlerFailed(Fault.of(error))
    ending = ending_of(value, forms)
    return AnswerHandlerFailed(ending.fault) if isinstance(ending, Errored) and ending.exitcode >= 500 else ending
