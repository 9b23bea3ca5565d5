"""What went wrong with a job, in a form that survives the process it happened in."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

TEXT_LIMIT: Final = 4_000
"""Characters kept of a message and of a traceback: an error is stored on the row, many times over in the history."""


def qualified(kind: type) -> str:
    """The qualified name of a class, by which other processes know it."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text as every store takes it: no NUL, no lone surrogates, not too long. The end of a long text is kept, as
    the useful part."""
    text = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else "…" + text[-limit:]


class FaultKind:
    """The kind of a fault."""

    ERROR: Final = "error"
    FAILED: Final = "failed"
    RETRY: Final = "retry"
    TIMEOUT: Final = "timeout"
    CRASH: Final = "crash"
    """The process that ran the job died; the message names the signal, or the exit status."""
    GIVEN_BACK: Final = "given back"
    RESCUED: Final = "rescued"
    CANCELLED: Final = "cancelled"
    REJECTED: Final = "rejected"


FAILURES: Final = (FaultKind.ERROR, FaultKind.TIMEOUT, FaultKind.CRASH)
"""The kinds of faults that no code of the job has asked for."""
ANSWER: Final = "answer"
"""The `type` of a fault that an answer reports: then its message is the answer's data."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error of a job. `kind` is one of `FaultKind`. `kinds` names the exception's classes, so that a retry policy
    can filter by class in any process."""

    kind: str
    message: str
    type: str = ""
    kinds: tuple[str, ...] = ()
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        import traceback  # not needed by those who only add jobs

        kinds = [qualified(k) for k in type(error).__mro__ if k not in (object, BaseException)]
        trace = "".join(traceback.format_exception(error))
        try:
            message = str(error)
        except BaseException as broken:  # a __str__ that raises must not lose the job's outcome
            message = f"(its message could not be had: {type(broken).__name__})"
        return cls(
            FaultKind.ERROR, clean(message), kinds[0] if kinds else qualified(type(error)), tuple(kinds), clean(trace)
        )

    @classmethod
    def load(cls, text: str) -> Fault:
        """The fault in an `error` column. A text that hipq has not written is taken as a message."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError:
            return cls(FaultKind.ERROR, text)

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()

    def is_a(self, *classes: builtins.type[BaseException]) -> bool:
        """Whether the exception was of one of these classes. A time-out counts as TimeoutError, a crash as
        ChildProcessError."""
        return self.is_named([qualified(kind) for kind in classes])

    def is_named(self, names: Iterable[str]) -> bool:
        """Whether one of these names of classes is among the exception's."""
        return not set(names).isdisjoint(self.kinds)

    @property
    def told(self) -> str:
        """What logs say of the fault: never the data of an answer."""
        return "its answer says that the work failed" if self.type == ANSWER else str(self)

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.type else self.message


def cut_to(code: Callable[..., Any] | None, error: BaseException) -> None:
    """Let the traceback begin in this code: the frames of hipq and of middleware say nothing about the error."""
    own = getattr(getattr(code, "__func__", code), "__code__", None)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not own:
        trace = trace.tb_next
    if trace is not None:  # else it was raised before the code was called
        error.__traceback__ = trace


def timeout(message: str) -> Fault:
    return Fault(FaultKind.TIMEOUT, message, "TimeoutError", ("TimeoutError", "OSError", "Exception"))


def crash(message: str) -> Fault:
    return Fault(FaultKind.CRASH, clean(message), "ChildProcessError", ("ChildProcessError", "OSError", "Exception"))


def details(fault: Fault) -> dict[str, Any]:
    """The fault as the history keeps it: short, without the traceback."""
    return {"kind": fault.kind, "error": clean(str(fault), 300)}
