"""The audit log: what people did by hand to an instance, and what they were refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hipq.job.fault import clean
from hipq.job.when import SECOND, to_datetime

LONGEST: Final = 500
"""Characters kept of a name, an address, an action and a target each."""
DETAILS: Final = 4_000
"""Characters that the details may have as JSON; of longer ones the first names are kept."""
KEPT: Final = 400 * 86_400 * SECOND
"""Microseconds that an entry is kept."""
PRUNED: Final = 100
"""Entries older than that which are deleted with each new one."""

Via = Literal["command", "api", "dashboard"]


class AuditEntry(NamedTuple):
    """One thing that somebody did. There is no payload in it, and no secret."""

    id: int
    """Its number; 0 = it is not stored yet."""
    at: int
    who: str
    role: str
    """By what right: a role of a token or of the dashboard; "database", of a command."""
    via: Via
    """By what way it came."""
    address: str
    """Where it came from: the address of a connection, the name of the machine of a command."""
    action: str
    target: str
    """What it was done to."""
    details: str = "{}"
    """More of it, as JSON."""


RECORDED: Final = AuditEntry._fields[1:]
"""The columns that an entry is written with."""


def entry(
    at: int, who: str, role: str, address: str, action: str, target: str, details: Mapping[str, Any] | None = None,
    via: Via = "dashboard",
) -> AuditEntry:  # fmt: skip
    """An entry that every store takes, whatever is in it."""
    who, role, address, action, target = (clean(text[:LONGEST]) for text in (who, role, address, action, target))
    text = clean(msgspec.json.encode(details or {}).decode(), 1 << 30)
    if len(text) > DETAILS:
        text = msgspec.json.encode({"too_long": [clean(name[:50]) for name in list(details or {})[:20]]}).decode()
    return AuditEntry(0, at, who, role, via, address, action, target, text)


def audit_json(entry: AuditEntry) -> dict[str, Any]:
    """An entry as programs see it."""
    found = {"number": entry.id, "at": to_datetime(entry.at), **entry._asdict()}
    return {name: value for name, value in found.items() if name != "id"} | {
        "at": to_datetime(entry.at), "details": msgspec.json.decode(entry.details)
    }  # fmt: skip
