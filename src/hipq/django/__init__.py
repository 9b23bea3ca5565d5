"""Django Tasks on hipq: backends for `TASKS`, an app for `INSTALLED_APPS` with their worker, and Django's databases for
applications of hipq. See docs/django.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hipq.django.backend import HipqBackend
    from hipq.django.database import django_database
    from hipq.django.waiter_backend import WaiterBackend

__all__ = ["HipqBackend", "WaiterBackend", "django_database"]
_WHERE: Final = {"HipqBackend": "backend", "WaiterBackend": "waiter_backend", "django_database": "database"}


def __getattr__(name: str) -> Any:
    """Import them when they are asked for: this package is also an app, which Django imports before its settings may be
    used."""
    if name in _WHERE:
        return getattr(import_module(f"hipq.django.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
