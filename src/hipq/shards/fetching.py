"""What is done for one shard as soon as another is there, beside the engines and callers, who do not wait for that."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from hipq.errors import StoreUnavailable
from hipq.shards.shard import AGAIN


class Fetcher:
    """A thread that does what it is given, again and again until no shard that it needs is away."""

    def __init__(self) -> None:
        self._todo: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._works = False
        self._is_held_up = False
        self._pause = threading.Event()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left but what waits for a shard that is away."""
        return not self._works or self._is_held_up

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
                    self._works = self._is_held_up = False
                    return
                fetch = self._todo.popleft()
            try:
                fetch()
                self._is_held_up = False
            except StoreUnavailable:
                self._is_held_up = True
                self._todo.append(fetch)
                self._pause.wait(AGAIN / max(len(self._todo), 1))
            except Exception:
                logging.getLogger("hipq").exception(
                    "an answer could not be brought to another shard: it stays where it is"
                )
