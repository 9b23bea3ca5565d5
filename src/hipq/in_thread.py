"""Blocking code beside an event loop."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

if TYPE_CHECKING:
    import asyncio

S = TypeVar("S")
T = TypeVar("T")
Parameters = ParamSpec("Parameters")


class awaitable(Generic[S, Parameters, T]):  # noqa: N801 - it is read like a decorator
    """A method for async code: the event loop goes on while `method` runs in a thread of its own."""

    def __init__(self, method: Callable[Concatenate[S, Parameters], T]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__ = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: S, owner: type) -> Callable[Parameters, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: S | None, owner: type) -> Any:
        return self if instance is None else functools.partial(self._run, instance)

    async def _run(self, instance: S, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> T:
        return await in_thread(lambda: self._method(instance, *args, **kwargs))


def async_twin(
    _method: Callable[Concatenate[S, Parameters], T],
) -> Callable[[Callable[..., Any]], Callable[Concatenate[S, Parameters], Coroutine[Any, Any, T]]]:
    """Decorator: an async method takes and returns what `_method` does, as far as type checkers are concerned."""
    return lambda twin: twin


async def in_thread(work: Callable[[], T]) -> T:
    """Wait for code that runs in a thread of its own, and is left alone if nobody waits any more. A pool of threads
    could be filled by slow code, and would be waited for at the end."""
    import asyncio  # whoever awaits this has loaded it; most programs that import this module do not

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    inside = contextvars.copy_context()  # the span that the caller belongs to is in there

    def end(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        value, raised = None, None
        try:
            value = inside.run(work)
        except BaseException as error:
            raised = error
        try:
            loop.call_soon_threadsafe(end, value, raised)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=run, name="hipq-beside-loop", daemon=True).start()
    return await future
