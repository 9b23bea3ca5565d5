"""The picture of the states: drawn here, since a browser would load what draws Mermaid from another host."""

from __future__ import annotations

import re
from typing import Final

_PLACES: Final[dict[str, tuple[float, float]]] = {
    "initial": (90, 90),
    "running": (310, 90),
    "final": (530, 90),
    "error": (530, 230),
    "retry": (310, 230),
}
_WIDTH: Final = 110
_HEIGHT: Final = 44
_MERMAID: Final = re.compile(r"```mermaid\nstateDiagram-v2\n(.*?)```\n", flags=re.DOTALL)


def drawn(text: str) -> str:
    """The text of a page with its diagram of states as a picture."""
    return _MERMAID.sub(lambda match: _picture(re.findall(r"(\S+) --> (\S+)", match[1])) + "\n", text)


def _picture(moves: list[tuple[str, str]]) -> str:
    boxes = "".join(
        f'<rect x="{x - _WIDTH / 2:g}" y="{y - _HEIGHT / 2:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>'
        f'<text x="{x}" y="{y + 5}">{name}</text>'
        for name, (x, y) in _PLACES.items()
    )
    said = ", ".join(f"{one} to {other}" for one, other in moves if "[*]" not in (one, other))
    return (
        f'<svg class="states" viewBox="0 0 620 300" role="img" aria-label="Moves between states: {said}">'
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0L10 5L0 10z"/></marker></defs>{"".join(_arrow(*move) for move in moves)}{boxes}</svg>\n'
    )


def _arrow(one: str, other: str) -> str:
    """From the edge of a box to the edge of another; `[*]` is outside: a job is born there, or stays for ever."""
    x1, y1 = _PLACES[other] if one == "[*]" else _PLACES[one]
    x2, y2 = _PLACES[one] if other == "[*]" else _PLACES[other]
    if one == "[*]":
        x1, y1, y2 = x2, 20, y2 - _HEIGHT / 2
    elif other == "[*]":
        x2, y1, y2 = x1, y1 - _HEIGHT / 2, 20
    elif y1 == y2:
        side = _WIDTH / 2 if x2 > x1 else -_WIDTH / 2
        x1, x2 = x1 + side, x2 - side
    else:
        side = _HEIGHT / 2 if y2 > y1 else -_HEIGHT / 2
        y1, y2 = y1 + side, y2 - side
        if x1 != x2:
            x1, x2 = (x1 + _WIDTH / 4, x2 - _WIDTH / 4) if x2 > x1 else (x1 - _WIDTH / 4, x2 + _WIDTH / 4)
    return f'<path class="move" d="M{x1:g} {y1:g}L{x2:g} {y2:g}" marker-end="url(#head)"/>'
