"""Adding jobs, whatever they are: from a body to payloads, past the quotas, into the journal, and the ids back.

Nothing on this way needs a thread, unless the store must be asked: for a key, or for an Idempotency-Key. A request that
needs no question at all, as most do not, goes the short way: `head` and `take`, which `fast_protocol` calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hipq.daemon.http.bodies import payloads, too_many
from hipq.daemon.http.idempotency import Asked, Once
from hipq.daemon.http.reply import Reply, added, refusal
from hipq.daemon.http.request import kind_of
from hipq.daemon.job_factory import PLAIN, Options
from hipq.daemon.tenancy.tenants import Known, is_jobtype_name
from hipq.daemon.tenancy.tokens import Role
from hipq.daemon.written import SMALL
from hipq.errors import HipqError, Invalid
from hipq.job.windows import ALWAYS

if TYPE_CHECKING:
    from hipq.daemon.http.api import Api
    from hipq.daemon.http.routes_table import Call, Route
    from hipq.daemon.tenancy.authenticator import Authenticator

UNUSUAL: Final = frozenset({b"idempotency-key", b"content-encoding", b"transfer-encoding", b"origin", b"expect"})
"""Headers of requests that the short way is not for."""

Done = Callable[[list[int] | Exception], None]
"""Is told the ids of jobs that are on disk, or why they are not."""


class Wanted(NamedTuple):
    """Jobs of one type to be added."""

    type: str
    options: Options
    payloads: Sequence[bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.payloads))


class Head(NamedTuple):
    """The head of a request that may go the short way."""

    tenant: str
    jobtype: str
    kind: str
    known: Known
    """The tenants and tokens by which the request was let in."""


class Adding:
    """Both ways of adding jobs: they differ in how a request comes and goes, and share all between."""

    def __init__(self, api: Api, door: Authenticator, once: Once, route: Route) -> None:
        self._api = api
        self._door = door
        self._once = once
        self._route = route
        """The route that requests on the short way are counted as."""

    @property
    def _most(self) -> int:
        """Bytes that a body on the short way may have."""
        return min(self._api.limits.body, SMALL)

    def _put(self, tenant: str, wanted: Wanted, size: int, done: Done) -> None:
        """Write jobs that were let in to the journal. `done` must begin with `_settle`. If this raises, `done` is never
        called."""
        try:
            self._api.jobs.put(tenant, wanted.type, wanted.payloads, wanted.options, done)
        except BaseException:
            self._api.gate.leave(tenant, len(wanted.payloads), size)
            raise

    def _settle(self, tenant: str, count: int, size: int, outcome: list[int] | Exception) -> None:
        """Tell the quotas what became of jobs that were let in."""
        if isinstance(outcome, Exception):
            self._api.gate.leave(tenant, count, size)
        else:
            self._api.gate.kept(tenant, count, size)
            self._api.counts.added(tenant, count, size)

    # -- any request ------------------------------------------------------------------------------------------------
    async def from_call(self, call: Call) -> Reply:
        """The jobs of a body that has their payloads."""
        text = await call.body.read()
        found = await call.reading(lambda text: payloads(call.kind, text, self._api.limits.jobs), text)
        options = _options(call.query, len(found)) if call.query else PLAIN
        wanted = Wanted(call.type, options, found)
        key = call.headers.get(b"idempotency-key")
        if key is None:
            return added(await self._add(call.tenant, wanted))
        return added(await self._add_once(call.tenant, [wanted], key, text + repr(options).encode()))

    async def all_of(self, call: Call, jobs: Sequence[Wanted], text: bytes) -> tuple[list[int], Reply | None]:
        """Jobs of several types: their ids; and what went wrong, if not all could be added, with the ids of those that
        were."""
        if len(jobs) > self._api.limits.jobs:
            raise too_many(self._api.limits.jobs)
        wanted = grouped(jobs)
        key = call.headers.get(b"idempotency-key")
        if key is not None:
            return await self._add_once(call.tenant, wanted, key, text), None
        ids: list[int] = []
        for one in wanted:
            try:
                ids += await self._add(call.tenant, one)
            except HipqError as error:
                return ids, refusal(error)
        return ids, None

    async def _add(self, tenant: str, wanted: Wanted) -> list[int]:
        if wanted.options.key:
            add = partial(self._api.jobs.add_to_store, tenant, wanted.type, wanted.payloads, wanted.options)
            return await self._store(tenant, [wanted], add)
        count, size = len(wanted.payloads), wanted.size
        await self._api.gate.enter(tenant, count, size)
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

        def done(outcome: list[int] | Exception) -> None:
            self._settle(tenant, count, size, outcome)
            if future.done():
                return
            future.set_exception(outcome) if isinstance(outcome, Exception) else future.set_result(outcome)

        self._put(tenant, wanted, size, done)
        return await future

    async def _add_once(self, tenant: str, wanted: Sequence[Wanted], key: bytes, text: bytes) -> list[int]:
        """Straight into the store, which remembers the key with the jobs, in one transaction: all of them or none."""
        asked = Asked(tenant, wanted[0].type, key, text)
        found = await self._api.turns.call(tenant, lambda: self._once.known(asked))
        if found is not None:
            return found
        return await self._store(tenant, wanted, lambda: self._once.add(asked, tenant, wanted))

    async def _store(self, tenant: str, wanted: Sequence[Wanted], add: Callable[[], list[int]]) -> list[int]:
        count, size = sum(len(one.payloads) for one in wanted), sum(one.size for one in wanted)
        async with self._api.gate.entered(tenant, count, size):
            ids = await self._api.turns.call(tenant, add)
        self._api.counts.added(tenant, count, size)
        return ids

    # -- the short way ----------------------------------------------------------------------------------------------
    def head(self, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Head | None:
        """The head of a POST of a few plain jobs by somebody who is known; None for any other request, and for one
        with which something is wrong: the usual way says what."""
        parts = url.split(b"/")
        if len(parts) != 5 or parts[0] or parts[2] != b"job" or parts[4] != b"add":
            return None
        said = dict(headers)
        length = said.get(b"content-length", b"")
        if len(said) < len(headers) or not UNUSUAL.isdisjoint(said) or self._api.strange(said):
            return None
        if not length.isdigit() or len(length) > 9 or int(length) > self._most:
            return None
        tenant, jobtype = parts[1].decode("latin-1"), parts[3].decode("latin-1")
        known = self._api.service.tenants.latest  # before the look: it may be another one behind it
        caller = self._door.quickly(said.get(b"authorization", b""))
        if caller is None or Role.POST not in caller.roles or not self._door.may_act_for(caller, tenant):
            return None
        if not is_jobtype_name(jobtype):
            return None
        return Head(tenant, jobtype, kind_of(said), known)

    def take(self, head: Head, body: bytes, reply: Callable[[Reply], None]) -> bool:
        """Whether the jobs in this body are taken: then `reply` is called later, when they are on disk or cannot be. If
        not, nothing has happened, and the usual way says what is wrong."""
        api, tenant = self._api, head.tenant
        if len(body) > self._most or not self._door.still_knows(head.known):
            return False  # its token may have been revoked

        def done(outcome: list[int] | Exception) -> None:
            self._settle(tenant, count, size, outcome)
            api.held.give(tenant, len(body))
            said = api.refused(self._route, outcome) if isinstance(outcome, Exception) else added(outcome)
            api.count(self._route, tenant, said)
            reply(said)

        try:
            wanted = Wanted(head.jobtype, PLAIN, payloads(head.kind, body, api.limits.jobs))
            count, size = len(wanted.payloads), wanted.size
            api.held.take(tenant, len(body))  # until it is on disk
        except Exception:
            return False
        try:
            if api.gate.enter_now(tenant, count, size):
                self._put(tenant, wanted, size, done)
                return True
        except Exception:
            pass
        api.held.give(tenant, len(body))
        return False


def grouped(jobs: Sequence[Wanted]) -> list[Wanted]:
    """Neighbours that differ only in what they carry are added together. One with a key goes alone."""
    found: list[Wanted] = []
    payloads: list[bytes] = []  # of the last of them: made anew for each job, a hundred thousand would take a minute
    for job in jobs:
        if found and not job.options.key and found[-1][:2] == job[:2]:
            payloads += job.payloads
        else:
            payloads = [*job.payloads]
            found.append(job._replace(payloads=payloads))
    return found


def _options(query: Mapping[str, Any], count: int) -> Options:
    key = query.get("key", "")
    if key and count > 1:
        raise Invalid(f"a key is for one job, and there are {count}")
    return Options(
        key=key, at=query.get("dt", 0), priority=query.get("priority", 100), windows=query.get("windows", ALWAYS),
        then=query.get("then", ""),
    )  # fmt: skip
