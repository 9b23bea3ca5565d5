"""A handler as people see it: as JSON, as text, and how two of them differ. Of secrets there are names only."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from hipq.daemon.handlers.handlers import PARTS
from hipq.job.when import to_datetime
from hipq.sandbox.handler import Handler

_HEAD: Final = ("lang", "eid", "waits")


def described(handler: Handler) -> dict[str, Any]:
    parts = {name: getattr(handler, name) for name in ("eid", "lang", *PARTS, "waits")}
    policy = msgspec.to_builtins(handler.policy)
    return {"id": handler.id, "type": handler.type, "dt": to_datetime(handler.dt), **parts, "policy": policy}


def settings(handler: Mapping[str, Any]) -> dict[str, str]:
    """What a described handler's policy says, by names like `retry.after`."""
    return dict(sorted(_flat(handler.get("policy", {}))))


def written(handler: Mapping[str, Any]) -> str:
    """All of a described handler."""
    head = [f"{name}: {_text(handler.get(name, ''))}" for name in _HEAD]
    head += [f"{name}: {value}" for name, value in settings(handler).items()]
    sources = [f"[{part}]\n{handler[part]}" for part in PARTS if handler.get(part)]
    return "\n".join([*head, *sources])


def difference(before: str, after: str, old: str, new: str) -> list[str]:
    """What differs in two handlers, `written`, as lines like those of `diff -u`."""
    return list(difflib.unified_diff(before.split("\n"), after.split("\n"), old, new, lineterm=""))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
