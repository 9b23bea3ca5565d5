"""The job whose code is running: known in its threads and tasks, in what these start, and in child processes."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Final

from hipq.executors.execution import Execution

_current: Final[ContextVar[Execution | None]] = ContextVar("hipq_execution", default=None)


def current() -> Execution | None:
    """The execution whose code calls this; None outside of any."""
    return _current.get()


class Inside:
    """A context manager around the code of a job."""

    __slots__ = ("_execution", "_token")

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def __enter__(self) -> None:
        self._token: Token[Execution | None] = _current.set(self._execution)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
