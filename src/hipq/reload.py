"""Watching the code of an application, for `--reload` and `hipq dev`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hipq.errors import HipqError, Invalid

STEP: Final = 200
"""Milliseconds after which the thread that watches looks whether it is to stop."""


def code_of(app: str) -> list[Path]:
    """Where the code of MODULE:APP is: below the current folder, and where its package is, if that is elsewhere."""
    here = Path.cwd()
    try:
        found = find_spec(app.partition(":")[0].partition(".")[0])  # imports nothing: it is no submodule
    except ValueError:
        found = None
    where = [] if found is None else [*(found.submodule_search_locations or [found.origin or "."])]
    apart = [path for path in map(Path, where) if path.exists() and not path.resolve().is_relative_to(here)]
    return [here, *apart]


@contextmanager
def changes(paths: Sequence[Path]) -> Iterator[int]:
    """A descriptor that delivers a byte whenever a file of Python has changed below these paths. Environments and
    caches do not count."""
    try:
        from watchfiles import PythonFilter, watch
    except ModuleNotFoundError:
        raise Invalid("a restart when code changes needs watchfiles: pip install 'hipq[reload]'") from None
    reading, writing = os.pipe2(os.O_CLOEXEC)
    done = threading.Event()
    ours = PythonFilter(ignore_paths=[sys.prefix])
    found = watch(*paths, watch_filter=ours, stop_event=done, rust_timeout=STEP, yield_on_timeout=True,
                  ignore_permission_denied=True)  # fmt: skip
    try:
        next(found)  # begins to watch, before anything is started
    except OSError as error:
        raise HipqError(f"cannot watch {', '.join(map(str, paths))}: {error}") from None

    def tell() -> None:
        for changed in found:
            if changed:
                os.write(writing, b"!")

    thread = threading.Thread(target=tell, name="hipq-reload", daemon=True)
    thread.start()
    try:
        yield reading
    finally:
        done.set()
        thread.join()
        os.close(reading)
        os.close(writing)
