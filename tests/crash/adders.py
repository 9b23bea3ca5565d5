"""Programs that add jobs to the queues of `make_timed`, and what its handlers noted of their runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipq import Hipq
from hipq.errors import StoreUnavailable


class Adding:
    """Adds jobs, each under a key, until it is acknowledged, and answers those that wait."""

    def __init__(self, app: Hipq, number: int, least: int = 30) -> None:
        """`least`: how many jobs it adds, however soon it is to end."""
        self._app, self._number, self._least = app, number, least
        self.keys: list[str] = []
        self.failed, self._error = 0, ""
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._add)
        self._thread.start()

    def end(self) -> None:
        self.over.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), f"{len(self.keys)} keys, {self.failed} calls failed: {self._error}"

    def until_it_works(self, act: Callable[[], object]) -> None:
        while True:
            try:
                act()
                return
            except StoreUnavailable as error:
                self.failed, self._error = self.failed + 1, str(error)
                time.sleep(0.2)

    def _add(self) -> None:
        timed, answered = self._app.queues
        while not self.over.is_set() or len(self.keys) < self._least:
            key = f"{self._number}-{len(self.keys)}"
            give: dict[str, Any] = {"key": key, "on_duplicate": "return"}
            self.until_it_works(lambda give=give: timed.enqueue("work", give["key"], **give))  # type: ignore[misc]
            self.until_it_works(lambda give=give: answered.enqueue("asks", give["key"], **give))  # type: ignore[misc]
            self.until_it_works(lambda key=key: self._app.answer("answered", "asks", key, key))  # type: ignore[misc]
            self.keys.append(key)


def most_at_once(runs: list[tuple[int, int, int]]) -> int:
    at_once = most = 0
    for _, change in sorted([(end, -1) for _, _, end in runs] + [(begin, 1) for _, begin, _ in runs]):
        at_once += change
        most = max(most, at_once)
    return most


def runs_of(folder: Path) -> list[tuple[int, int, int]]:
    file = folder / "ran"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(job), int(began), int(ended)) for job, began, ended in map(str.split, lines)]
