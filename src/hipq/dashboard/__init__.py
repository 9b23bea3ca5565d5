"""The dashboard: pages that show an instance and let people act on it. `asgi(app)` is an application of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hipq.dashboard.application import asgi as asgi
    from hipq.dashboard.visit import Role as Role
    from hipq.dashboard.visit import Visitor as Visitor

__all__ = ["Role", "Visitor", "asgi"]


def __getattr__(name: str) -> object:
    if name == "asgi":
        from hipq.dashboard.application import asgi  # it loads asyncio and Jinja2

        return asgi
    if name in ("Role", "Visitor"):
        from hipq.dashboard import visit

        return getattr(visit, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
