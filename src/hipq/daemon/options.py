"""How a daemon works."""

from __future__ import annotations

from typing import Final

import msgspec

from hipq.sandbox import ContextSettings

APP: Final = "daemon"
QUEUE: Final = "jobs"


class Options(msgspec.Struct, frozen=True):
    """How a daemon works."""

    db: str | None = None
    journal: str = "daemon.journal"
    journal_bytes: int = 1 << 30
    """What may wait in the journal while the store is away."""
    concurrency: int = 8
    """Batches that run at the same time, each in a context."""
    retry_after: float = 60.0
    """Seconds until a job that had an error is tried again; each time it is twice as long."""
    retry_most: float = 3600.0
    """Seconds until a job is tried again, at most."""
    give_up_after: float = 86_400.0
    """Seconds from when a job was added, after which its next error is final."""
    run_timeout: float = 3600.0
    """Seconds a handler may take for one job."""
    keep: float = 7 * 86_400.0
    """Seconds for which jobs that have ended are kept."""
    drain: float | None = None
    """Seconds that a stop may take; then jobs that still run are given back. None = they are waited for."""
    shutdown_delay: float = 0.0
    """Seconds for which it still takes requests when it is to stop, and says that it is not ready: so that a balancer
    hears of it before nobody listens any more."""
    job_log: str = ""
    """The file that gets a line for each job that enters, runs, completes; "" = none."""
    secrets_key_file: str = ""
    """The file with the keys that secrets are encrypted with; "" = $HIPQ_SECRETS_KEY has them, if there are any."""
    contexts: ContextSettings = ContextSettings()
