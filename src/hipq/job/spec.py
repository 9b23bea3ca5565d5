"""What an engine needs to know of a job type: its code and its defaults."""

from __future__ import annotations

import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hipq.errors import Invalid, shown
from hipq.job import meta, names, payload
from hipq.job.codec import ANY, Codec, codec, shown_type
from hipq.job.middleware import NO_MIDDLEWARES, Middlewares
from hipq.job.outcome import Failed, Ok, Progress, Retry, Wait
from hipq.job.retries import RESERVED, RetryHandler, backoff, fixed, handler, schedule
from hipq.job.units import UNIT

if TYPE_CHECKING:
    from hipq.job.answer import Answer
    from hipq.job.model import Row

Handler = Callable[[Any], Any]
AnswerHandler = Callable[[Any, "Answer"], Any]
_OUTCOMES: Final = (Failed, Ok, Progress, Retry, Wait)
"""Values that a handler returns and that are outcomes, not results."""


class Spec(msgspec.Struct):
    name: str
    queue: str = ""
    fn: Handler | None = None
    retry: RetryHandler | None = None
    answered: AnswerHandler | None = None
    """Called with the answer of a job that waits. Without it, the answer is the job's result."""
    cancelled: Handler | None = None
    """Called when a waiting job is given up, to cancel the work outside."""
    on_late: AnswerHandler | None = None
    """Called with answers that came too late."""
    fence: bool = False
    """Whether an answer that names another attempt than the present one is too late."""
    timeout: float = 86_400.0
    run_timeout: float = 0.0
    """Seconds that a handler itself may run; 0 = as long as `timeout`."""
    lifetime: float = 0.0
    """Seconds from create_time after which the next error is final; 0 = no bound."""
    priority: int = 100
    throttle_factor: int = UNIT
    """What a job takes of limits, in thousandths of a unit."""
    windows: str = "[]"
    critical: bool = False
    """Whether limits neither count jobs of this type nor hold them up."""
    process: bool = False
    """Whether the handler runs in a child process."""
    is_async: bool = False
    callback: Callable[[Row, float | timedelta | None], str] | None = None
    """Makes the URL by which the answer to a job can be delivered."""
    middlewares: Middlewares = NO_MIDDLEWARES
    """The middlewares of its app."""
    strategies: Mapping[str, RetryHandler] = {}
    """Retry strategies by the names they are registered under: a job may name one as its own."""
    data: Codec = ANY
    """Reads and writes the payload, as the handler's annotation types it: `Job[Charge]`."""
    result: Codec = ANY
    """Writes the result, as the annotation of the handler or of its answer handler types it."""
    answer: Codec = ANY
    """Reads the answer's data, as the answer handler's annotation types it: `Answer[Paid]`."""

    def load(self, text: str) -> Any:
        """The payload as the handler gets it."""
        return self.data.decode(text)

    def retry_of(self, row: Row) -> RetryHandler | None:
        """The retry handler for a failed job: that of its own strategy, else that of its type. NotRegistered, if only
        another program has that code."""
        own = meta.load(row.meta).retry
        return self.retry if own is None else handler(own, self.strategies)

    def dump(self, data: Any, what: str = "data") -> str:
        """A payload as JSON. Invalid, if the handler would get something else than this."""
        try:
            return payload.encode(data, what, self.data)
        except msgspec.ValidationError as error:
            raise Invalid(f"{what} does not fit {self.name}'s {shown_type(self.data.type)}: {error}") from None

    def typed(self, data: dict[str, Any]) -> Any:
        """A payload as the handler will get it. One that does not fit yet is returned as it is, for others to complete
        or refuse."""
        try:
            return self.load(self.dump(data))
        except Invalid:
            return data

    def load_result(self, text: str) -> Any:
        """The result as the handler's annotation types it."""
        try:
            return self.result.decode(text)
        except msgspec.ValidationError as error:
            raise Invalid(
                f"a result of {self.name} does not fit {shown_type(self.result.type)}: {error}; `Hipq.job` shows it as "
                "plain JSON"
            ) from None

    def dump_result(self, result: Any) -> str:
        """A result as JSON. It need not fit the annotation, because the job has done its work; where plain JSON has no
        such value, the annotated type may."""
        try:
            return payload.encode(result, "the result")
        except Invalid:
            if self.result is ANY:
                raise
        try:
            return payload.encode(result, "the result", self.result)
        except msgspec.ValidationError as error:
            raise Invalid(f"the result does not fit {shown_type(self.result.type)}: {error}") from None


def takes(code: Any, what: str, parameters: str) -> Any:
    """Checks that the code can be called with these parameters, given as "job, answer"."""
    if not callable(code):
        raise Invalid(f"{what} must be a function that takes ({parameters}), not {shown(code)}")
    try:
        inspect.signature(code).bind(*parameters.split(", "))
    except ValueError:
        pass  # a builtin, which does not say what it takes
    except TypeError:
        name = getattr(code, "__name__", "it")
        raise Invalid(f"{what} is called with ({parameters}): write def {name}({parameters})") from None
    return code


def ends(code: Any, what: str, parameters: str) -> Any:
    """Checks the same of code that ends a job or decides about one. A generator is refused: calling it does not run
    it."""
    takes(code, what, parameters)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise Invalid(f"{what} is called once and returns: write return, not yield, in {_called(code)}")
    return code


def retry_handler(handler: Any, what: str = "a retry handler") -> RetryHandler:
    if handler in (backoff, fixed, schedule) or not callable(handler):
        raise Invalid(
            f"retry takes a policy, like retry=backoff(attempts=3), or a function (job, fault); not {shown(handler)}"
        )
    if inspect.iscoroutinefunction(handler):
        raise Invalid(f"{what} must be a plain function: write def, not async def")
    if isinstance(handler, type):
        example = f"backoff(on={handler.__name__})" if issubclass(handler, BaseException) else "backoff(attempts=3)"
        raise Invalid(f"retry takes a policy, like retry={example}, or a function (job, fault); not a class")
    found: RetryHandler = ends(handler, what, "job, fault")
    return found


def registering(strategies: dict[str, RetryHandler], name: str) -> Callable[[RetryHandler], RetryHandler]:
    """A decorator that puts a retry strategy under its name."""
    if names.strategy(name) in RESERVED:
        raise Invalid(f"{name} is the name of a ready-made retry strategy: choose another")

    def register(strategy: RetryHandler) -> RetryHandler:
        retry_handler(strategy, "a retry strategy")
        if name in strategies:
            raise Invalid(f"a retry strategy is registered under the name {name} already")
        strategies[name] = strategy
        return strategy

    return register


def plain(handler: AnswerHandler) -> AnswerHandler:
    if inspect.iscoroutinefunction(ends(handler, "on_late", "job, answer")):
        raise Invalid("on_late must be a plain function: it is called by whoever brings the answer, and not awaited")
    return handler


def data_of(fn: Callable[..., Any], holder: type, position: int = 0) -> Codec:
    """The codec of T where this parameter is annotated `Job[T]`, or `Answer[T]`; plain JSON without that."""
    kind = _held(fn, holder, position)
    try:
        return codec(kind, f"{holder.__name__}[{shown_type(kind)}]")
    except Invalid as error:
        raise Invalid(f"{_called(fn)}: {error}") from None


def same_job(fn: Callable[..., Any], holder: type, spec: Spec) -> None:
    """Refuse code that is annotated for jobs with data of another class than the handler."""
    try:
        kind, mine = _held(fn, holder, 0), spec.data.type
    except Invalid:
        return  # its annotation cannot be read; the handler's says what the data is
    if Any not in (kind, mine) and inspect.isclass(kind) and inspect.isclass(mine) and kind not in mine.__mro__:
        raise Invalid(
            f"{_called(fn)} takes a Job[{shown_type(kind)}], and the data of {spec.name} is a {shown_type(mine)}: "
            f"write Job[{shown_type(mine)}]"
        )


def _held(fn: Callable[..., Any], holder: type, position: int) -> Any:
    """T where this parameter is annotated `Job[T]`; Any without that."""
    hint = _hint(fn, holder, position)
    if typing.get_origin(hint) is not holder:
        return Any
    (kind,) = typing.get_args(hint)
    return Any if isinstance(kind, typing.TypeVar) else kind


def result_of(fn: Callable[..., Any]) -> Codec:
    """The codec of what a handler returns as its job's result, by its annotation; plain JSON, if that says nothing."""
    hint = getattr(fn, "__annotations__", {}).get("return")
    if hint in (None, "None", Any):  # its result may be that of its answer handler
        return ANY
    try:
        holder = types.SimpleNamespace(__annotations__={"return": hint})
        hint = typing.get_type_hints(holder, getattr(inspect.unwrap(fn), "__globals__", {}))["return"]
        is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        kinds = typing.get_args(hint) if is_union else (hint,)
        results = [kind for kind in kinds if kind not in _OUTCOMES]
        return codec(functools.reduce(operator.or_, results)) if results else ANY
    except (Invalid, NameError, AttributeError, SyntaxError, TypeError):  # hipq can do without it
        return ANY


def _hint(fn: Callable[..., Any], holder: type, position: int) -> Any:
    """The annotation of a parameter, as a type; None if it means nothing when the program runs."""
    try:
        given = [*inspect.signature(fn).parameters.values()][position : position + 1]
    except ValueError:
        return None
    hint = given[0].annotation if given else None
    code = inspect.unwrap(fn)
    while isinstance(code, functools.partial):
        code = code.func
    if not hasattr(code, "__globals__"):
        code = getattr(code, "__func__", type(code).__call__)
    one = types.SimpleNamespace(__annotations__={"it": hint})
    try:
        return typing.get_type_hints(one, getattr(code, "__globals__", {}))["it"]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        if re.search(rf"\b{holder.__name__}\[(?!\s*(?:typing\.)?Any\s*\])", str(hint)):
            raise Invalid(
                f"{_called(fn)}: {hint} means nothing when the program runs ({error}): define or import its names at "
                "the top of the module, not under TYPE_CHECKING"
            ) from None
        return None


def _called(fn: Handler) -> str:
    return str(getattr(fn, "__name__", None) or type(fn).__name__)
