"""What the backends have in common: they report wrong settings, and they can work."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from hipq.django.location import Location
from hipq.django.tasks import BaseTaskBackend
from hipq.errors import Invalid, SchemaError


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker is told, as `hipq worker` is."""

    queues: Sequence[str] | None
    concurrency: int
    until_empty: bool
    lease: float
    wait: float | None
    drain: float | None
    listens: bool
    log_success: bool
    metrics: tuple[str, int] | None


class TaskBackend(BaseTaskBackend):
    """A backend whose worker is `manage.py hipq_worker`."""

    supports_defer = True
    supports_async_task = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._wrong = ""
        """What is wrong with OPTIONS. `manage.py check` reports it, and could not if the constructor raised."""
        try:
            self._read(self.options)
        except Invalid as error:
            self._wrong = str(error)

    @property
    def location(self) -> Location | None:
        """Django's database that has the jobs, if they are in one."""
        return None

    @abstractmethod
    def _read(self, options: dict[str, Any]) -> None:
        """Read the options; raises Invalid."""

    @abstractmethod
    def work(self, wanted: WorkerSettings) -> None:
        """Run tasks until SIGINT or SIGTERM, or until nothing is due."""

    def named(self) -> str:
        return f"TASKS[{self.alias!r}]"

    def lacking(self, error: SchemaError) -> str:
        """What to do about missing tables, in the words of Django's world."""
        how = "migrate" if self.location is not None else "hipq_migrate"
        return f"{self.named()}: {str(error).partition('; run `hipq migrate')[0]}: run manage.py {how}"

    def usable(self) -> None:
        if self._wrong:
            raise ImproperlyConfigured(f"{self.named()}: {self._wrong}")

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        yield from super().check(**kwargs)
        if self._wrong:
            yield checks.Error(f"{self.named()}: {self._wrong}", id="hipq.E001")
        if not apps.is_installed("hipq.django"):
            yield checks.Error(
                f"{self.named()} is a backend of hipq, whose app is not installed.",
                hint="Add 'hipq.django' to INSTALLED_APPS: it has the worker, and makes the tables.",
                id="hipq.E005",
            )
