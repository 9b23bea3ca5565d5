"""Rows as a table that fits its terminal. Pure: the width is an argument, None = as wide as it gets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hipq.observe.logs import escaped

GAP: Final = "  "
LEAST: Final = 6
"""Characters of a column of text that are left, at least, when it is cut."""


def moment(value: datetime) -> str:
    """A time in a table: to the second, in UTC."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def text_of(value: Any) -> str:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escaped("" if value is None else str(value))


def laid_out(
    columns: Sequence[str], rows: Sequence[dict[str, Any]], width: int | None = None, spare: Sequence[str] = ()
) -> list[str]:
    """The lines of a table. Where it is too wide, `spare` columns go first, in their order; then text is cut; and where
    even that does not help each row is a paragraph of its own. Numbers and times are never cut: half of one is wrong.
    """
    shown = list(columns)
    while True:
        made = [_Column(name, [row[name] for row in rows]) for name in shown]
        if width is None or _width(made) <= width:
            return _lines(made)
        if not (left_out := next((name for name in spare if name in shown), None)):
            break
        shown.remove(left_out)
    for column in made:
        column.tighten()
    while _width(made) > width and (widest := max(made, key=lambda one: one.slack)).slack > 0:
        widest.width -= 1
    return _lines(made) if _width(made) <= width else _paragraphs(columns, rows)


class _Column:
    def __init__(self, name: str, values: Sequence[Any]) -> None:
        self.head = name.replace("_", " ")
        self.cells = [text_of(value) for value in values]
        there = [value for value in values if value is not None]
        self.is_number = bool(there) and all(
            isinstance(one, int | float) and not isinstance(one, bool) for one in there
        )
        self._is_whole = self.is_number or (bool(there) and all(isinstance(one, datetime) for one in there))
        self._content = max(map(len, self.cells), default=0)
        self.width = max(self._content, len(self.head))

    def tighten(self) -> None:
        """A long heading over short values need not be read whole."""
        self.width = max(self._content, min(len(self.head), LEAST))

    @property
    def slack(self) -> int:
        """How much of it can be cut."""
        return 0 if self._is_whole else self.width - LEAST

    def line(self, text: str) -> str:
        text = text if len(text) <= self.width else text[: self.width - 1] + "…"
        return text.rjust(self.width) if self.is_number else text.ljust(self.width)


def _width(columns: Sequence[_Column]) -> int:
    return sum(one.width for one in columns) + len(GAP) * (len(columns) - 1)


def _lines(columns: Sequence[_Column]) -> list[str]:
    heads = [one.head for one in columns]
    rows = zip(*(one.cells for one in columns), strict=True)
    return [
        GAP.join(one.line(cell) for one, cell in zip(columns, cells, strict=True)).rstrip() for cells in (heads, *rows)
    ]


def _paragraphs(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[str]:
    """What a terminal breaks into two lines is still read as one value here."""
    names = [name.replace("_", " ") for name in columns]
    width = max(map(len, names))
    lines: list[str] = []
    for row in rows:
        cells = [text_of(row[name]) for name in columns]
        lines += ["", *(f"{name:<{width}}{GAP}{cell}" for name, cell in zip(names, cells, strict=True) if cell)]
    return lines[1:]
