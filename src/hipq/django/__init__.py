"""Django Tasks on hipq: backends for `TASKS`, and an app for `INSTALLED_APPS` with their worker. See docs/django.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipq.django.backend import HipqBackend
    from hipq.django.waiter_backend import WaiterBackend

__all__ = ["HipqBackend", "WaiterBackend"]


def __getattr__(name: str) -> Any:
    """Import the backends when they are asked for: this package is also an app, which Django imports before its
    settings may be used."""
    if name == "HipqBackend":
        from hipq.django.backend import HipqBackend

        return HipqBackend
    if name == "WaiterBackend":
        from hipq.django.waiter_backend import WaiterBackend

        return WaiterBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
