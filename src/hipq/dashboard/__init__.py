"""The dashboard: pages that show an instance and let people act on it. `asgi(app)` is an application of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hipq.dashboard.application import asgi as asgi
    from hipq.dashboard.visit import Role as Role
    from hipq.dashboard.visit import Visitor as Visitor

__all__ = ["Role", "Visitor", "asgi"]


def __getattr__(name: str) -> object:
    if name in __all__:
        try:
            from hipq.dashboard import application  # it loads asyncio and Jinja2
        except ModuleNotFoundError as error:
            if error.name not in ("jinja2", "markupsafe"):
                raise
            raise ImportError("the dashboard needs Jinja2: pip install 'hipq[dashboard]'") from None
        return getattr(application, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
