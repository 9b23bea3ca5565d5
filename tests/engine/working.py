"""Engines that work in threads while a test looks on, in real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hipq import Hipq
from hipq.engine.loop import Engine

real_time = pytest.mark.parametrize("clock", [None], ids=["real"])
"""In place of the clock that is turned by hand."""
one_store = pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
"""For what happens in the process, whichever store its jobs are in."""


@contextmanager
def working(*apps: Hipq, **options: Any) -> Iterator[list[Engine]]:
    """An engine of each of these programs at work; stopped at the end, at once if something went wrong."""
    engines = [app.engine(**options) for app in apps]
    threads = [threading.Thread(target=engine.run, daemon=True) for engine in engines]
    for thread in threads:
        thread.start()
    try:
        yield engines
    except BaseException:
        for engine in engines:
            engine.stop()
        raise
    finally:
        for engine in engines:
            engine.stop()
        for thread in threads:
            thread.join(60)
        for engine in engines:
            engine.executor.close()
    assert not any(thread.is_alive() for thread in threads)


def until(condition: Callable[[], object], seconds: float = 60.0) -> float:
    """Wait for it; how long that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, "did not happen"
        time.sleep(0.005)
    return time.monotonic() - began


def until_empty(app: Hipq, seconds: float = 60.0, **options: Any) -> float:
    """`app.run(until_empty=True)`, and it must return; how long that took."""
    engine = app.engine(**options)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            engine.run(until_empty=True)
        except BaseException as error:
            raised.append(error)

    began = time.monotonic()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    took, hangs = time.monotonic() - began, thread.is_alive()
    engine.stop()
    engine.stop()
    thread.join(60)
    engine.executor.close()
    if raised:
        raise raised[0]
    assert not hangs, f"it was still working after {seconds} s"
    return took
