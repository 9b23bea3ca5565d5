"""Middleware: code of an application around the adding of all its jobs, and around all code of theirs.

    class Tenants(Middleware):
        def enqueue(self, call):
            call.data = {**call.data, "tenant": tenant.get()}

        def run(self, job):
            with tenant_of(job.data["tenant"]):
                yield

What runs around code is a generator: the code runs where it yields. So one method serves plain and `async def` handlers
alike, and whatever it holds by `with` is held in the handler's thread or task.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from hipq.errors import Invalid, shown
from hipq.job.outcome import Failed, Retry

if TYPE_CHECKING:
    from hipq.job.answer import Answer
    from hipq.job.fault import Fault
    from hipq.job.options import JobOptions
    from hipq.job.view import Job


class Enqueue:
    """A job that is about to be added: what `enqueue` was given. What a middleware assigns here is what is checked, and
    stored."""

    __slots__ = ("data", "key", "options", "queue", "type")

    def __init__(self, queue: str, type: str, data: Any, key: str | None, options: JobOptions) -> None:
        self.queue = queue
        self.type = type
        self.data = data
        self.key = key
        self.options = options
        """The options that were given, by name: lane, priority, delay and so on."""

    def __repr__(self) -> str:
        return f"<Enqueue {self.queue}.{self.type} {self.key!r}>"


class Middleware:
    """What an app `use`s around its jobs. Each method may be left out; the first middleware used is the outermost.

    `run`, `answer` and `retry` are generators with one `yield`, at which the code runs: `outcome = yield` is what it
    came to, also a `Failed` or `Retry` that it raised; any other exception is raised there, and goes on whatever is
    made of it. To change an outcome, raise `Failed`, `Retry` or an error: that is then what the code came to. What is
    raised before the `yield` is, too, and the code does not run."""

    def enqueue(self, call: Enqueue) -> None:
        """Before a job is checked and stored, where it is added: look at it, change it, or raise to refuse it."""

    def run(self, job: Job[Any]) -> Iterator[None]:  # noqa: ARG002
        """Around a handler, and around a cancel handler (`job.phase` is "cancelling" there)."""
        yield

    def answer(self, job: Job[Any], answer: Answer) -> Iterator[None]:  # noqa: ARG002
        """Around an answer handler."""
        yield

    def retry(self, job: Job[Any], fault: Fault) -> Iterator[None]:  # noqa: ARG002
        """Around a retry handler, whose verdict is the outcome."""
        yield


Step = Callable[..., Any]
_AROUND: Final = ("run", "answer", "retry")


class Middlewares:
    """The middlewares of an app, by method: a call that none of them wraps costs nothing."""

    __slots__ = ("_enqueue", "answer", "retry", "run")

    def __init__(self) -> None:
        self._enqueue: tuple[Callable[[Enqueue], None], ...] = ()
        self.run: tuple[Step, ...] = ()
        self.answer: tuple[Step, ...] = ()
        self.retry: tuple[Step, ...] = ()

    def use(self, middleware: Middleware) -> None:
        if not isinstance(middleware, Middleware):
            raise Invalid(f"app.use takes an instance of a class like hipq.Middleware, not {shown(middleware)}")
        kind = type(middleware)
        for name in _AROUND:
            if not inspect.isgeneratorfunction(getattr(kind, name)):
                raise Invalid(
                    f"{kind.__name__}.{name} must be a generator function (and no context manager): write `yield` "
                    "where the handler is to run"
                )
        if inspect.isgeneratorfunction(kind.enqueue) or inspect.iscoroutinefunction(kind.enqueue):
            raise Invalid(f"{kind.__name__}.enqueue must be a plain function: it is over before the job is stored")
        if kind.enqueue is not Middleware.enqueue:
            self._enqueue += (middleware.enqueue,)
        for name in _AROUND:
            if getattr(kind, name) is not getattr(Middleware, name):
                setattr(self, name, (*getattr(self, name), getattr(middleware, name)))

    @property
    def see_jobs_added(self) -> bool:
        return bool(self._enqueue)

    def enqueue(
        self, queue: str, type: str, data: Any, key: str | None, options: JobOptions
    ) -> tuple[Any, str | None, JobOptions]:
        """Data, key and options as the middlewares leave them."""
        if not self._enqueue:
            return data, key, options
        call = Enqueue(queue, type, data, key, options.copy())
        for step in self._enqueue:
            step(call)
        return call.data, call.key, call.options


NO_MIDDLEWARES: Final = Middlewares()


def call(steps: tuple[Step, ...], is_async: bool, code: Callable[..., Any], *given: Any, ends: bool = True) -> Any:
    """What code returns (awaited, if it is async), run inside these middlewares. `ends`: whether a Failed or Retry that
    it raises is an outcome."""
    around = Around(steps, given, (Failed, Retry) if ends else ())
    if is_async:
        return _awaited(around, code, given)
    with around:
        around.outcome = code(*given)
    return around.outcome


async def _awaited(around: Around, code: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    with around:
        around.outcome = await code(*given)
    return around.outcome


class Around:
    """A context manager around one call of a job's code, which runs the middlewares before and after it."""

    def __init__(self, steps: tuple[Step, ...], given: tuple[Any, ...], outcomes: tuple[type[Exception], ...]) -> None:
        self.outcome: Any = None
        """The outcome of the code: to be set inside the block."""
        self._steps = steps
        self._given = given
        self._outcomes = outcomes
        self._entered: list[GeneratorType[None, Any, None]] = []

    def __enter__(self) -> None:
        for step in self._steps:
            try:
                entered = step(*self._given)
                if next(entered, self) is self:
                    raise RuntimeError(f"{step.__qualname__} has returned without a yield: the handler cannot run")
            except BaseException as error:
                left = self._leave(error)
                if left is None or left is error:
                    raise
                raise left from error
            self._entered.append(entered)

    def __exit__(self, _kind: object, raised: BaseException | None, _trace: object) -> bool:
        left = self._leave(raised)
        if left is not None and left is not raised:
            raise left
        return left is None

    def _leave(self, raised: BaseException | None) -> BaseException | None:
        """Resume each middleware after its `yield`, the innermost first. Returns the exception that is raised in the
        end."""
        while self._entered:
            steps = self._entered.pop()
            if isinstance(raised, self._outcomes):
                self.outcome, raised = raised, None
            try:
                if raised is None:
                    steps.send(self.outcome)
                else:
                    steps.throw(raised)
            except StopIteration:
                continue  # an error goes on: who only looks at it must not make a success of it
            except BaseException as error:
                # Python makes a RuntimeError of a StopIteration that goes through a generator
                if not (isinstance(raised, StopIteration) and error.__cause__ is raised):
                    raised = error
            else:
                steps.close()
                raised = RuntimeError(f"{steps.__qualname__} has a second yield: the handler runs once")
        return raised
