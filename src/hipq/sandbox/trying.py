"""One run of a handler that is not kept: where it would run, with all that it would have, and nothing comes of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from hipq.errors import OverQuota
from hipq.sandbox.handler import ContextJob, Handler, JobReport, Sign
from hipq.sandbox.pool import ContextPool
from hipq.sandbox.secrets import Secrets
from hipq.sandbox.settings import ContextSettings

MOST_SECONDS: Final = 60.0
AT_ONCE: Final = 2
IN_LINE: Final = 8
"""Tenants who try a handler out, or wait for that: the last of them waits for three minutes, and not for ever."""
_changed = threading.Condition()
_line: list[str] = []
"""Tenants in the order in which they came; the first ones try theirs out. Each is there once, and who comes again is
behind the others: so nobody keeps anybody from it."""


def tried(
    handler: Handler, payload: bytes, seconds: float, settings: ContextSettings, secrets: Secrets, sign: Sign
) -> JobReport:
    """How a job with this payload ends. CannotRun if none can run here."""
    with _turn_of(handler.tenant):
        pool, reports = ContextPool(settings), list[JobReport]()
        try:
            task = ContextJob(f"test-{uuid4().hex[:12]}", payload, 1, min(seconds, MOST_SECONDS))
            pool.run(handler, [task], lambda _: None, reports.append, secrets, sign)
        finally:
            pool.close()
        return reports[0] if reports else JobReport(task.id, 500, error="its context ended before it began")


@contextmanager
def _turn_of(tenant: str) -> Iterator[None]:
    with _changed:
        if tenant in _line:
            raise OverQuota("a handler of this tenant is tried out right now, or waits for that: one at a time", 5)
        if len(_line) >= IN_LINE:
            raise OverQuota(f"{IN_LINE} tenants try handlers out, or wait for that: try again in a minute", 60)
        _line.append(tenant)
        _changed.wait_for(lambda: _line.index(tenant) < AT_ONCE)
    try:
        yield
    finally:
        with _changed:
            _line.remove(tenant)
            _changed.notify_all()
