"""The thread that starts processes. The kernel ends them with the thread that started them, not with its process."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future

from hipq.sandbox.scratch import Scratch

Start = Callable[[], "subprocess.Popen[bytes]"]


class Spawner:
    """A thread that lives as long as its contexts may."""

    def __init__(self) -> None:
        self.scratch = Scratch()
        self._wanted: queue.SimpleQueue[tuple[Start, Future[subprocess.Popen[bytes]]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="hipq-contexts", daemon=True)
        self._thread.start()

    def start(self, start: Start) -> subprocess.Popen[bytes]:
        future: Future[subprocess.Popen[bytes]] = Future()
        self._wanted.put((start, future))
        return future.result()

    def close(self) -> None:
        """End the thread, and with it every process that still runs."""
        self._wanted.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            start, future = wanted
            try:
                future.set_result(start())
            except BaseException as error:
                future.set_exception(error)
            del start, future, wanted  # otherwise they are kept alive until the next request
