"""The dashboard: pages that show an instance and let people act on it. `asgi(app)` is an application of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hipq.dashboard.application import asgi as asgi

__all__ = ["asgi"]


def __getattr__(name: str) -> object:
    if name == "asgi":
        from hipq.dashboard.application import asgi  # it loads asyncio and Jinja2

        return asgi
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
