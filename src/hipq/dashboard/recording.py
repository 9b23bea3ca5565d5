"""What people do by the dashboard goes into the audit log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from hipq.dashboard.visit import PageRoute, Visit
from hipq.errors import HipqError
from hipq.job.when import SECOND
from hipq.observe.logs import escaped
from hipq.stores.audit import entry
from hipq.stores.protocols import Store

KEPT: Final = 400 * 86_400 * SECOND
"""Microseconds that an entry is kept: with each new one, some that are older go."""
STEP: Final = 100

_log = logging.getLogger("hipq")


def record(store: Store, visit: Visit, action: str, details: Mapping[str, object]) -> None:
    """It has been done, so it is said even if it cannot be stored: then in the program's log."""
    name, role = visit.visitor
    try:
        now = store.now()
        store.record(entry(now, name, role.name.lower(), visit.address, action, visit.path, details))
        store.prune_audit_log(now - KEPT, STEP)
    except HipqError as error:
        done = escaped(f"{name} ({role.name.lower()}) from {visit.address}: {action} {visit.path} {details}")
        _log.error("the audit log cannot be written (%s), so here is what it lacks: %s", error, done)


def action_of(route: PageRoute) -> str:
    """What a route does, in words: "jobs cancel" for /jobs/{id}/cancel."""
    return " ".join(part for part in route.pattern.split("/") if part and not part.startswith("{"))
