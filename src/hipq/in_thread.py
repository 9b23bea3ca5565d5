"""Blocking code beside an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Wait for code that runs in a thread of its own, and is left alone if nobody waits any more. A pool of threads
    could be filled by slow code, and would be waited for at the end."""
    future: Future[T] = Future()
    inside = contextvars.copy_context()  # the span that the caller belongs to is in there

    def run() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(inside.run(work))
            except BaseException as error:
                future.set_exception(error)

    threading.Thread(target=run, name="hipq-beside-loop", daemon=True).start()
    return await asyncio.wrap_future(future)
