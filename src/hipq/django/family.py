"""What the backends have in common: they say what is wrong with their settings, and they can work."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from hipq.django.tasks import BaseTaskBackend
from hipq.errors import Invalid


class TaskBackend(BaseTaskBackend):
    """A backend whose worker is `manage.py hipq_worker`."""

    supports_defer = True
    supports_async_task = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._wrong = ""
        """What OPTIONS says that cannot be: told by `manage.py check`, which could not be asked if this raised."""
        try:
            self._read(self.options)
        except Invalid as error:
            self._wrong = str(error)

    @abstractmethod
    def _read(self, options: dict[str, Any]) -> None:
        """Invalid, if they are."""

    @abstractmethod
    def work(self, queues: Sequence[str] | None, *, concurrency: int, until_empty: bool, lease: float) -> None:
        """Until asked to stop by SIGINT or SIGTERM, or until nothing is due."""

    def named(self) -> str:
        return f"TASKS[{self.alias!r}]"

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
