"""The history of a job, for people: no code decides by it. Other programs may write to it in plain SQL, so entries that
cannot be read are left out, and one entry says how many."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hipq.job.event_names import UNREADABLE
from hipq.job.when import LATEST

_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "at": int, "event": str, "scheduled": int, "by": int, "count": int, "priority": int, "cost": (int, float),
    "error": str, "kind": str, "key": str, "to": str, "log": str, "version": str,
}  # fmt: skip
"""An entry as hipq itself writes it."""


def entries_of(text: str) -> list[dict[str, Any]]:
    """The entries, the oldest first. Each has the moment `at`, in microseconds since 1970, and the name of an
    `event`."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        found = None
    entries = found if isinstance(found, list) else [found]
    readable = [one for one in entries if _is_readable(one)]
    if left := len(entries) - len(readable):
        readable.append({"at": readable[-1]["at"] if readable else 0, "event": UNREADABLE, "count": left})
    return readable


def _is_readable(entry: Any) -> bool:
    if not isinstance(entry, dict) or not {"at", "event"} <= entry.keys():
        return False
    known = all(isinstance(entry[name], kind) for name, kind in _KINDS.items() if name in entry)
    return known and all(0 <= entry.get(name, 0) <= LATEST for name in ("at", "scheduled"))
