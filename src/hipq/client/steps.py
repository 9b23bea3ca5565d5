"""Requests to a daemon as steps without I/O, which both clients carry out: a step is a request or a pause."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar, overload

from hipq.client.replies import Lost, Response
from hipq.errors import DaemonUnavailable

if TYPE_CHECKING:
    from hipq.client.clients import AsyncClient, Client

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0

P = ParamSpec("P")
T = TypeVar("T")


class ClientRequest(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    repeatable: bool = False
    """Whether it does no harm if the request arrives twice."""
    seconds: float = 30.0
    """Seconds the reply may take."""


class Pause(NamedTuple):
    seconds: float


Step = ClientRequest | Pause
Steps = Generator[Step, "Response | Lost | None", T]


class verb(Generic[P, T]):  # noqa: N801 - a decorator
    """Makes a method that yields steps one that carries them out; in an `AsyncClient` it is to be awaited."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self._steps = steps
        self.__doc__, self.__wrapped__ = steps.__doc__, steps  # for help() and editors

    @overload
    def __get__(self, client: None, owner: Any) -> verb[P, T]: ...
    @overload
    def __get__(self, client: Client, owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        return self if client is None else MethodType(self, client)

    def __call__(self, client: Any, *arguments: P.args, **options: P.kwargs) -> Any:
        return client._do(self._steps(client, *arguments, **options))


def retried(request: ClientRequest, patience: float) -> Steps[Response]:
    """The reply to a request. A request that the daemon does not accept right now, or never got, is sent again for
    `patience` seconds; one that it may have carried out, only if that does no harm."""
    until = time.monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        came = yield request
        assert came is not None
        wanted = pause * random.uniform(0.5, 1.0)  # clients that were refused together should not come back together
        if isinstance(came, Response):
            if not _later(came):
                return came
            wanted = max(wanted, came.retry_after or 0.0)
        if time.monotonic() + wanted > until or (isinstance(came, Lost) and came.sent and not request.repeatable):
            if isinstance(came, Response):
                return came
            raise DaemonUnavailable(f"the daemon cannot be reached: {came.why}")
        yield Pause(wanted)
        pause = min(pause * 2, LONGEST_PAUSE)


def _later(response: Response) -> bool:
    """Whether the daemon asks to try later. A conflict does if it says when."""
    return response.status in (429, 502, 503, 504, 507) or (response.status == 409 and response.retry_after is not None)
