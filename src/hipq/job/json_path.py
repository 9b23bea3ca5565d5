"""Paths into JSON, such as `customer.emails.0`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hipq.errors import Invalid, shown

_STEP: Final = re.compile(r"[\w$@-]{1,200}")
_INDEX: Final = re.compile(r"[0-9]{1,9}")


def steps(path: str) -> tuple[str, ...]:
    """The steps of a path such as `customer.emails.0`."""
    found = tuple(path.split(".")) if isinstance(path, str) else ("",)
    if not all(_STEP.fullmatch(step) for step in found):
        raise Invalid(f"a path into JSON is names with dots between, like customer.emails.0, not {shown(path)}")
    return found


def reach(value: Any, path: tuple[str, ...], what: str) -> Any:
    """The value at the end of a path; Invalid, naming where the path ends too early, if there is none."""
    for number, step in enumerate(path):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, (list, tuple)) and _INDEX.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            raise Invalid(f"{what} has no field {'.'.join(path[: number + 1])}")
    return value
