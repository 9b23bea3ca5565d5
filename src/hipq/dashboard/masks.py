"""Fields whose values nobody sees: `masked(payload, {"card"})`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final

import msgspec

MASK: Final = "•••"
"""What stands in the place of a value that is not shown."""
DEEPEST: Final = 100
"""Levels that are looked through; what is deeper is masked whole."""


def masked(value: Any, names: Collection[str]) -> Any:
    """The value without what its fields of these names hold, at any depth. Names are in lower case; fields have them in
    any case. Texts are masked inside, too: as JSON if they are an object or an array, else line by line."""
    return _masked(value, frozenset(names), DEEPEST) if names else value


def _masked(value: Any, names: frozenset[str], levels: int) -> Any:
    if isinstance(value, (dict, list, tuple, str)) and levels == 0:
        return MASK
    if isinstance(value, dict):
        return {
            name: MASK if str(name).lower() in names else _masked(one, names, levels - 1) for name, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_masked(one, names, levels - 1) for one in value]
    return _text(value, names, levels) if isinstance(value, str) else value


def _text(text: str, names: frozenset[str], levels: int) -> str:
    if text.lstrip()[:1] in ("{", "[", '"'):
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return _line_by_line(text, names)
        return as_json(text, found, _masked(found, names, levels - 1), names)
    return _line_by_line(text, names)


def as_json(text: str, found: Any, kept: Any, names: Collection[str]) -> str:
    """The text as it was written, if nothing in it is masked. It may have a name twice, of which parsing keeps the
    last: where one of the masked names may be in it, such a text is shown as it was understood."""
    lowered = text.lower()
    is_suspect = "\\u" in lowered or any(name in lowered for name in names)
    if kept == found and not (is_suspect and _has_a_name_twice(text)):
        return text
    return msgspec.json.encode(kept).decode()


def _has_a_name_twice(text: str) -> bool:
    def check(pairs: list[tuple[str, Any]]) -> None:
        if len({name for name, _ in pairs}) < len(pairs):
            raise LookupError

    try:
        json.loads(text, object_pairs_hook=check)
    except (LookupError, ValueError, RecursionError):
        return True
    return False


def _line_by_line(text: str, names: frozenset[str]) -> str:
    """Messages and tracebacks quote payloads in many ways. What follows a name and `:` or `=` goes, up to the end of
    its line; if a bracket opens there, nobody can say where it closes, and the rest of the text goes."""
    kept, end = list[str](), 0
    while found := _values(names).search(text, end):
        kept += [text[end : found.end()], MASK]
        end = text.find("\n", found.end())
        if end < 0 or text[found.end() : found.end() + 1] in "{[(":
            return "".join(kept)
    return "".join([*kept, text[end:]])


@lru_cache(16)
def _values(names: frozenset[str]) -> re.Pattern[str]:
    """Where a value of one of these names begins."""
    return re.compile(rf"""(?i)(?<!\w)(?:{"|".join(map(re.escape, sorted(names)))})["'\\]*[^\S\n]*[:=][^\S\n]*""")
