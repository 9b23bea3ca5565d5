"""Ready-made middleware: `app.use(SentryScope())`, `app.use(StructlogContext())`, `app.use(DjangoConnections())`.

Each needs its library when it is made, and not before. How to write one: `hipq.Middleware` and docs/middleware.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hipq.errors import Invalid
from hipq.job.answer import Answer
from hipq.job.fault import Fault
from hipq.job.middleware import Enqueue, Middleware
from hipq.job.view import Job
from hipq.observe.logs import ATTRIBUTES, current_job

__all__ = ["DjangoConnections", "Enqueue", "JobScope", "Middleware", "SentryScope", "StructlogContext"]


class JobScope(Middleware):
    """The same around handlers, answer handlers, retry handlers and cancel handlers: a subclass has one generator,
    `scope`, with one `yield`."""

    def scope(self, job: Job[Any]) -> Iterator[None]:  # noqa: ARG002
        yield

    def run(self, job: Job[Any]) -> Iterator[None]:
        yield from self.scope(job)

    def answer(self, job: Job[Any], answer: Answer) -> Iterator[None]:  # noqa: ARG002
        yield from self.scope(job)

    def retry(self, job: Job[Any], fault: Fault) -> Iterator[None]:  # noqa: ARG002
        yield from self.scope(job)


@contextmanager
def _needs(what: str, package: str) -> Iterator[None]:
    """Around the import of a package that comes with no extra of hipq."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package.replace("-", "_"):
            raise
        raise Invalid(f"{what} needs {package}: pip install {package}") from None


class SentryScope(JobScope):
    """All that code of a job sends to Sentry has the job in its tags (`job_id`, `job_queue`, `job_type`, `job_key`,
    `job_attempt`), and shares nothing with what other jobs send. So do the events of runs that failed, which hipq's log
    makes."""

    def __init__(self) -> None:
        with _needs("SentryScope", "sentry-sdk"):
            from sentry_sdk import isolation_scope
            from sentry_sdk.scope import add_global_event_processor

        self._isolated = isolation_scope
        add_global_event_processor(_tagged)

    def scope(self, job: Job[Any]) -> Iterator[None]:  # noqa: ARG002
        with self._isolated() as sentry:
            sentry.set_tags(current_job())
            yield


def _tagged(event: Any, _hint: Any) -> Any:
    """An event of a log record that is about a job: its attributes are what Sentry calls extra data."""
    extra = event.get("extra") or {}
    if event.get("logger") == "hipq" and "job_id" in extra:
        event["tags"] = {**(event.get("tags") or {}), **{name: extra[name] for name in ATTRIBUTES if name in extra}}
    return event


class StructlogContext(JobScope):
    """All that code of a job logs has the job in its context variables, which the processor
    `structlog.contextvars.merge_contextvars` puts into each line."""

    def __init__(self) -> None:
        with _needs("StructlogContext", "structlog"):
            from structlog.contextvars import bound_contextvars

        self._bound = bound_contextvars

    def scope(self, job: Job[Any]) -> Iterator[None]:  # noqa: ARG002
        with self._bound(**current_job()):
            yield


class DjangoConnections(JobScope):
    """Before and after code of a job, Django's connections that are broken or older than CONN_MAX_AGE are closed, as
    they are around a request. For plain handlers; `async def` ones use Django's models in threads of asgiref's."""

    def __init__(self) -> None:
        import django.db  # noqa: F401 - the error comes here, and not in every job

    def scope(self, job: Job[Any]) -> Iterator[None]:  # noqa: ARG002
        with fresh_connections():
            yield


@contextmanager
def fresh_connections() -> Iterator[None]:
    """Close Django's connections that are broken or old, before and after."""
    _close_old_connections()
    try:
        yield
    finally:
        _close_old_connections()


def _close_old_connections() -> None:
    """As Django's own function of this name, and `reset_queries`, do; but a connection that is in a transaction is in
    use: a test calls handlers inside its own."""
    from django.db import connections

    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.queries_log.clear()
            connection.close_if_unusable_or_obsolete()
