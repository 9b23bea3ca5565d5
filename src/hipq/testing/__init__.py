"""For tests: an application under test (`harness`), a clock to turn by hand, the contract suite every store runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipq.testing.clock import HandClock
    from hipq.testing.inline import Ran
    from hipq.testing.replies import Reply
    from hipq.testing.sent import Sent
    from hipq.testing.under_test import Harness, HarnessFactory, harness

__all__ = ["HandClock", "Harness", "HarnessFactory", "Ran", "Reply", "Sent", "harness"]

_WHERE = {
    "HandClock": "clock", "Harness": "under_test", "HarnessFactory": "under_test", "Ran": "inline", "Reply": "replies",
    "Sent": "sent", "harness": "under_test",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: pytest imports this package in every project that has hipq installed."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = found
    return found
