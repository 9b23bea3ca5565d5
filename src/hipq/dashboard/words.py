"""Filters of the templates: how times, spans and numbers are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from markupsafe import Markup, escape

from hipq.job.when import SECOND, lasting, to_datetime


def ago(moment: int, now: int) -> Markup:
    """A moment relative to now, with the exact one where it is pointed at."""
    if not moment:
        return Markup("")
    seconds = (now - moment) / SECOND
    said = f"{lasting(seconds)} ago" if seconds >= 0 else f"in {lasting(-seconds)}"
    exact = to_datetime(moment).isoformat(sep=" ", timespec="milliseconds")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(exact, escape(said))


def count(value: int, most: int = 0) -> str:
    """A number of things; counting has stopped at `most`."""
    return f"{value:,}+" if most and value >= most else f"{value:,}"


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {"ago": ago, "count": count, "lasting": lasting}
