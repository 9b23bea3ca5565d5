"""Answers that came before their job began to wait, and are in another shard. They are fetched beside the engine, whose
turn must not wait for that shard."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from hipq.errors import StoreUnavailable
from hipq.shards.shard import AGAIN


class Fetcher:
    """A thread that does what it is given, again and again until the shard is there."""

    def __init__(self) -> None:
        self._todo: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._works = False
        self._pause = threading.Event()

    @property
    def is_idle(self) -> bool:
        return not self._works

    def add(self, fetch: Callable[[], None]) -> None:
        with self._lock:
            self._todo.append(fetch)
            starts, self._works = not self._works, True
        if starts:
            threading.Thread(target=self._work, name="hipq-fetcher", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._todo:
                    self._works = False
                    return
                fetch = self._todo.popleft()
            try:
                fetch()
            except StoreUnavailable:
                self._todo.append(fetch)
                self._pause.wait(AGAIN / max(len(self._todo), 1))
