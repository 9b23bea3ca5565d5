"""The app: it creates hipq's tables with Django's, and checks what the backends need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate

if TYPE_CHECKING:
    from hipq.django.backend import HipqBackend


class HipqConfig(AppConfig):
    name = "hipq.django"
    label = "hipq"
    verbose_name = "hipq"

    def ready(self) -> None:
        post_migrate.connect(_make_tables, sender=self)
        checks.register(_check_tables, checks.Tags.database)
        checks.register(_check_sqlite, checks.Tags.security, deploy=True)


def backends() -> Iterator[HipqBackend]:
    """The backends in TASKS that are hipq's and have valid options."""
    from hipq.django.backend import HipqBackend
    from hipq.django.tasks import task_backends

    for backend in task_backends.all():
        if isinstance(backend, HipqBackend) and not backend._wrong:
            yield backend


def _make_tables(using: str, **_: Any) -> None:
    """With Django's own tables, in every database of Django's that has jobs."""
    for backend in backends():
        if backend.location is not None and backend.location.alias == using:
            backend.migrate_through_django()


def _check_tables(databases: Iterable[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    from hipq.django import diagnosis

    wanted = set(databases or ())
    return [message for backend in backends() for message in diagnosis.tables(backend, wanted)]


def _check_sqlite(**_: Any) -> list[checks.CheckMessage]:
    from hipq.django import diagnosis

    return [message for backend in backends() for message in diagnosis.old_sqlite(backend)]
