"""Far tasks for Celery: an `eta` or `countdown` further out than a limit is kept by hipq, in SQLite or PostgreSQL, and
published to the broker when it is due. Any broker of Celery's. See docs/celery.md.

    import hipq.celery
    kept = hipq.celery.install(app, "postgresql://…")    # a Hipq: `hipq job list tasks:kept`
"""

from __future__ import annotations

try:
    import celery as _celery  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("hipq.celery needs Celery: pip install 'hipq[celery]'") from error

from hipq.celery.installed import FURTHER_THAN, HISTORY, cancel, install, uninstall

__all__ = ["FURTHER_THAN", "HISTORY", "cancel", "install", "uninstall"]
