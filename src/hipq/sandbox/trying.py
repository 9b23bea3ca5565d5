"""One run of a handler that is not kept: where it would run, with all that it would have, and nothing comes of it."""

from __future__ import annotations

import threading
from typing import Final
from uuid import uuid4

from hipq.errors import OverQuota
from hipq.sandbox.handler import ContextJob, Handler, JobReport, Sign
from hipq.sandbox.pool import ContextPool
from hipq.sandbox.secrets import Secrets
from hipq.sandbox.settings import ContextSettings

MOST_SECONDS: Final = 60.0
AT_ONCE: Final = 2
_lock = threading.Lock()
_trying: set[str] = set()
"""The tenants whose handlers are tried out right now: one each, so that nobody keeps all others from it."""


def tried(
    handler: Handler, payload: bytes, seconds: float, settings: ContextSettings, secrets: Secrets, sign: Sign
) -> JobReport:
    """How a job with this payload ends. CannotRun if none can run here."""
    with _lock:
        if handler.tenant in _trying or len(_trying) >= AT_ONCE:
            raise OverQuota("other handlers are tried out right now: try again later", 5)
        _trying.add(handler.tenant)
    try:
        pool, reports = ContextPool(settings), list[JobReport]()
        try:
            task = ContextJob(f"test-{uuid4().hex[:12]}", payload, 1, min(seconds, MOST_SECONDS))
            pool.run(handler, [task], lambda _: None, reports.append, secrets, sign)
        finally:
            pool.close()
        return reports[0] if reports else JobReport(task.id, 500, error="its context ended before it began")
    finally:
        with _lock:
            _trying.discard(handler.tenant)
