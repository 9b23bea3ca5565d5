"""The routes that change many jobs, found by filters: counted first, then step by step."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from hipq.daemon.bulk import MOST, Found
from hipq.daemon.http.job_json import MAYBE_TEXT, NUMBER, TEXT, typed
from hipq.daemon.http.reply import Reply, reply
from hipq.daemon.http.routes_jobs import REASON
from hipq.daemon.http.routes_table import (
    ID_LIMIT,
    Call,
    Gives,
    Query,
    Route,
    flag,
    job_type,
    number,
    one_of,
    text,
    when,
)
from hipq.errors import Conflict, HipqError, Invalid, shown
from hipq.job import names
from hipq.job.states import CODES, FINAL, PHASES
from hipq.operate import Changed
from hipq.stores.filters import Filter

SECONDS: Final = 5.0
"""How long one request goes on: then it says how far it got."""
_PLACE: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


class Place(NamedTuple):
    """How far an earlier request got, and which jobs it was about: those that were added before a moment."""

    after: int
    before: int

    def __str__(self) -> str:
        return f"{self.after}-{self.before}"


def _place(said: str) -> Place:
    found = _PLACE.fullmatch(said)
    place = Place(*map(int, found.groups())) if found else None
    if place is None or max(place) > ID_LIMIT:
        raise Invalid(f"after must be `next` of an earlier reply, not {shown(said)}")
    return place


# -- what is done ----------------------------------------------------------------------------------------------------
async def cancel_many(call: Call) -> Reply:
    return await _many(call, "live", partial(_move, call, call.api.service.bulk.cancel, call.query.pop("reason", "")))


async def retry_many(call: Call) -> Reply:
    return await _many(call, "live", partial(_move, call, call.api.service.bulk.retry, ""))


async def requeue_many(call: Call) -> Reply:
    return await _many(call, "final", partial(_requeue, call))


async def requeue(call: Call) -> Reply:
    row = await call.blocking(call.api.jobs.get, call.tenant, call.id)
    async with call.api.gate.entered(call.tenant, 1, len(row.job_data)):
        added = await call.blocking(call.api.service.bulk.requeue_one, row)
    call.details["id"] = str(added)
    return reply({"id": str(added)}, 201)


async def _move(call: Call, do: Callable[..., Changed], reason: str, found: Found) -> Changed:
    changed: Changed = await call.blocking(do, found.rows, reason)
    return changed


async def _requeue(call: Call, found: Found) -> Changed:
    rows = found.rows
    async with call.api.gate.entered(call.tenant, len(rows), sum(len(row.job_data) for row in rows)):
        added = len(await call.blocking(call.api.service.bulk.requeue, call.tenant, rows))
    return Changed(added, len(rows) - added)


async def _many(call: Call, table: str, do: Callable[[Found], Any]) -> Reply:
    """The first request says `dry_run`, and is told how many there are; or `count`, and more than that are not changed.
    Each goes on for some seconds, and the next one where it ended."""
    bulk, query = call.api.service.bulk, dict(call.query)
    dry, most, place = query.pop("dry_run", False), query.pop("count", None), query.pop("after", None)
    if (dry, most is not None, place is not None).count(True) != 1:
        raise Invalid("say dry_run=true to count the jobs; then count=, how many may be changed; or after=, to go on")
    first = place or Place(0, await call.blocking(bulk.now))
    wanted = bulk.wanted(call.tenant, table, first.before, first.after, **query)
    if place is None:
        found = await _counted(call, wanted, MOST if most is None else most)
        if dry:
            call.is_change = False
            return reply({"found": found, "more": found > MOST})
        if found > most:
            raise Conflict(f"this is about more than {most:,} jobs, and count says so many: nothing was changed")
    total, after = await _stepped(call, wanted, do)
    call.details.update(query, changed=total.changed, skipped=total.skipped)
    following = str(Place(after, first.before)) if after else None
    return reply({"changed": total.changed, "skipped": total.skipped, "next": following})


async def _counted(call: Call, wanted: Filter, most: int) -> int:
    """How many there are; a number above `most` if there are more."""
    found, after = 0, wanted.after
    while True:
        some, after = await call.blocking(call.api.service.bulk.count, wanted._replace(after=after))
        found += int(some)
        if not after or found > most:
            return found


async def _stepped(call: Call, wanted: Filter, do: Callable[[Found], Any]) -> tuple[Changed, int]:
    until, total, after = time.monotonic() + SECONDS, Changed(), wanted.after
    while True:
        found: Found = await call.blocking(call.api.service.bulk.find, wanted._replace(after=after))
        try:
            total += await do(found) if found.rows else Changed()
        except HipqError:
            if total == Changed():
                raise
            return total, after  # the audit log has what was done; the next request is told why it was no more
        after = found.after
        if not after or time.monotonic() > until or call.api.stopping.is_set():
            return total, after


# -- the table -------------------------------------------------------------------------------------------------------
_COUNTED: Final = typed({"found": NUMBER, "more": {"type": "boolean"}})
_DONE: Final = typed({"changed": NUMBER, "skipped": NUMBER, "next": MAYBE_TEXT})
_GIVES: Final = (
    Gives(200, "With `dry_run` how many there are; else how many were changed, and `after` of the request that goes "
          "on, null when all is done.", {"anyOf": [_COUNTED, _DONE]}),
)  # fmt: skip
_LIVE_PHASES: Final = sorted({phase for state, some in PHASES.items() for phase in some if state != FINAL})
_CODE: Final = one_of("code", "Ended like this, or went wrong like this the last time.", *CODES[1:])
_WHICH: Final = (
    job_type("type", "Of this type."), text("key", "With this key.", names.KEY_LIMIT),
    when("since", "Added at this moment or later."),
)  # fmt: skip
_LIVE: Final = (one_of("state", "In this state.", *(state for state in PHASES if state != FINAL)),
                one_of("phase", "In this phase.", *_LIVE_PHASES))  # fmt: skip
_HOW: Final = (
    flag("dry_run", "true: only count them."),
    number("count", "How many may be changed: if there are more, none is.", 0, MOST),
    Query("after", "`next` of an earlier reply: go on from there.", {"type": "string", "pattern": _PLACE.pattern},
          _place),
)  # fmt: skip


def _route(action: str, does: Any, about: str, *query: Query) -> Route:
    return Route("POST", f"/v1/{{client}}/jobs/{action}", does, about, _GIVES, query=(*_WHICH, *query, *_HOW),
                 refuses=(409, 413, 429))  # fmt: skip


ROUTES: Final = (
    _route("cancel", cancel_many, "Cancel jobs that have not ended: all that the filters find. A request goes on for "
           "some seconds; `next` in its reply goes on from there.", *_LIVE, _CODE, REASON),
    _route("retry", retry_many, "Run jobs now that wait for their time, or for their retry: all that the filters find.",
           *_LIVE, _CODE),
    _route("requeue", requeue_many, "Add a job like each that has ended: all that the filters find. They count for "
           "the tenant's quotas.", _CODE),
    Route("POST", "/v1/{client}/jobs/{id}/requeue", requeue, "Add a job like one that has ended.",
          (Gives(201, "The id of the new one.", typed({"id": TEXT})),), refuses=(409, 413, 429)),
)  # fmt: skip
