"""A job that is asked for by its id before the store has it: it is waited for, a while, and never said not to exist.

Nobody can tell what is another's from what is not there: all ids that may still come are treated alike.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from hipq.daemon.http.reply import ClientGone, Reply, later, reply, sentence
from hipq.daemon.http.request import first_of, gone
from hipq.daemon.ids import is_given_out
from hipq.errors import NotFound, StoreUnavailable

if TYPE_CHECKING:
    from hipq.daemon.accepted import Accepted
    from hipq.daemon.http.routes_table import Call
    from hipq.daemon.http.stream import Stream

ON_ITS_WAY: Final = 5.0
"""Seconds for which a job is waited for that a journal may have still, unless whoever asks says how long."""
LONGEST_PAUSE: Final = 0.2
"""Seconds between two looks for it."""
NOT_STORED: Final = "accepted, not stored yet"
ACCEPTED: Final = {"state": "accepted", "phase": "not stored yet"}
WAITS: Final = "wait"
"""What says in a query how long to wait."""


async def found(call: Call, accepted: Accepted) -> Reply | Stream:
    """What the route does, when the store has the job that it is about; or that it has not got it yet."""
    if not call.id or not is_given_out(call.id):
        return await call.route.does(call)
    question = accepted.question(call.id)
    try:
        return await call.route.does(call)
    except NotFound:
        pass
    except StoreUnavailable:
        return _not_stored(call, accepted)
    async with AsyncExitStack() as staying:
        if call.query.get(WAITS):
            await staying.enter_async_context(call.staying())
        try:
            return await _waited(call, question.is_over, staying)
        except StoreUnavailable:
            return _not_stored(call, accepted)


async def _waited(call: Call, is_over: Callable[[], bool], staying: AsyncExitStack) -> Reply | Stream:
    wanted = call.query.get(WAITS, 0.0)
    until, pause = time.monotonic() + (wanted or ON_ITS_WAY), 0.01
    while True:
        over = await call.blocking(is_over)  # before the look: it may arrive in between
        if wanted:
            call.query[WAITS] = max(until - time.monotonic(), 0.001)
        try:
            await call.blocking(call.api.jobs.get, call.tenant, call.id)
            await staying.aclose()  # the route has its own way to wait
            return await call.route.does(call)
        except NotFound:
            if over:
                raise
        if time.monotonic() > until or call.api.stopping.is_set():
            return _said(call)
        if wanted:
            async with first_of(gone(call.receive), seconds=pause) as (leaving,):
                if leaving.done():
                    raise ClientGone  # nobody waits for who has gone
        else:
            await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _not_stored(call: Call, accepted: Accepted) -> Reply:
    """The store is away: of a job in this daemon's journal it is known all the same."""
    if not accepted.is_here(call.tenant, call.id):
        raise StoreUnavailable
    return _said(call)


def _said(call: Call) -> Reply:
    if call.route.method == "GET":
        return reply(ACCEPTED, 202, later(1))
    return sentence(503, f"the job is {NOT_STORED}, so nothing can be changed about it; try again", later(1))
