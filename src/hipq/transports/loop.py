"""An event loop in a thread of its own, for client libraries that have only an asynchronous interface.

The loop runs all the time, so that heartbeats are answered while the caller's transaction takes its time.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Loop:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=f"hipq-{name}", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a coroutine on the loop and wait for it. After `seconds` it is cancelled, and TimeoutError is raised."""
        if not self._thread.is_alive():
            work.close()
            raise TimeoutError("the event loop has ended")
        try:
            return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), self._loop).result()
        except CancelledError:  # asyncio has a CancelledError of its own
            raise TimeoutError("it was cancelled") from None

    def close(self) -> None:
        """Cancel what still runs on the loop, and end it."""

        async def end() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._loop.stop()

        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(end(), self._loop)
            self._thread.join(timeout=5)


def cut(writer: asyncio.StreamWriter | None) -> None:
    """Abort a connection at once: bytes that the server does not have yet are never sent."""
    if writer is None:
        return
    with suppress(OSError):
        linger = struct.pack("ii", 1, 0)  # otherwise the kernel goes on sending its buffer
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
