"""What people and programs change by hand, by commands, over HTTP and in the dashboard, goes into the audit log."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from hipq.errors import HipqError
from hipq.observe.logs import escaped
from hipq.stores.audit import Via, entry
from hipq.stores.protocols import Store

_log = logging.getLogger("hipq")


def record(
    store: Store | None, via: Via, who: str, role: str, address: str, action: str, target: str,
    details: Mapping[str, object],
) -> None:  # fmt: skip
    """It has been done, so it is said even if it cannot be stored, or nothing is: then in the program's log."""
    done = escaped(f"{who} ({role}) from {address}: {action} {target} {details}")
    if store is None:
        return _log.info("%s", done)
    try:
        store.record(entry(store.now(), who, role, address, action, target, details, via))
    except HipqError as error:
        _log.error("the audit log cannot be written (%s), so here is what it lacks: %s", error, done)
