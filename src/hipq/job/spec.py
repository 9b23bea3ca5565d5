"""What the engine must know of a job type: its code and its defaults."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from hipq.errors import Invalid
from hipq.job.retries import RetryHandler

if TYPE_CHECKING:
    from hipq.job.answer import Answer
    from hipq.job.model import Row

Handler = Callable[[Any], Any]


@dataclass(slots=True)
class Spec:
    name: str
    queue: str = ""
    fn: Handler | None = None
    retry: RetryHandler | None = None
    answered: Callable[[Any, Answer], Any] | None = None
    """Looks at the answer of a job that waits; without it, the answer is the job's result."""
    cancelled: Handler | None = None
    """Tells whoever works on a job that waits that it is given up."""
    on_late: Callable[[Any, Answer], Any] | None = None
    """Is shown answers that came too late."""
    fence: bool = False
    """An answer that names another attempt than the job is at, is too late."""
    timeout: float = 86_400.0
    run_timeout: float = 0.0
    """Seconds a handler itself may execute; 0 = as long as `timeout`."""
    lifetime: float = 0.0
    """Seconds from create_time after which the next error is final; 0 = no bound."""
    priority: int = 100
    throttle_factor: int = 1
    windows: str = "[]"
    critical: bool = False
    """Limits do not count it and do not hold it up."""
    process: bool = False
    """Run it in a process of its own."""
    is_async: bool = False
    callback: Callable[[Row, float | timedelta | None], str] | None = None
    """Makes the URL by which the answer to one of its jobs can be brought."""
    payload: Any = Any
    """The type a handler's annotation gives its data: `Job[Charge]`."""

    def load(self, text: str) -> Any:
        """The payload as the handler wants it."""
        return msgspec.json.decode(text, type=self.payload)

    def check(self, text: str) -> None:
        if self.payload is not Any:
            try:
                self.load(text)
            except msgspec.ValidationError as error:
                raise Invalid(f"data does not fit {self.name}'s {_shown(self.payload)}: {error}") from None


def _shown(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)


def payload_of(fn: Handler, job_class: type) -> Any:
    """The T of a first parameter annotated `Job[T]`; Any without one."""
    try:
        hints = typing.get_type_hints(fn)
        first = next(iter(inspect.signature(fn).parameters), None)
    except (NameError, TypeError, ValueError):
        return Any  # an annotation that cannot be resolved is no reason to refuse a handler
    hint = hints.get(first) if first else None
    if typing.get_origin(hint) is job_class:
        (kind,) = typing.get_args(hint)
        if isinstance(kind, typing.TypeVar):
            return Any
        try:
            msgspec.json.Decoder(kind)
        except TypeError as error:
            raise Invalid(f"{fn.__name__}: Job[{_shown(kind)}] cannot be read from JSON: {error}") from None
        return kind
    return Any
