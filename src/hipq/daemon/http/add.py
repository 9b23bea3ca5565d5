"""Adding jobs, whatever they are: from a body to payloads, past the quotas, into the journal, and the ids back.

Nothing on this way needs a thread, unless the store must be asked: for a key, or for an Idempotency-Key. Those that
need no question at all are added by `api_at_once`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hipq.daemon.http.bodies import payloads, too_many
from hipq.daemon.http.idempotency import Asked, Once, check_payloads
from hipq.daemon.http.reply import Reply, added, refusal
from hipq.daemon.http.request import LARGE, Limits
from hipq.daemon.job_factory import PLAIN, Options
from hipq.errors import HipqError, Invalid
from hipq.job.windows import ALWAYS

if TYPE_CHECKING:
    from hipq.daemon.http.metrics import Counts
    from hipq.daemon.http.routes_table import Call
    from hipq.daemon.http.service import Jobs
    from hipq.daemon.tenancy.fair_semaphore import FairSemaphore
    from hipq.daemon.tenancy.quotas import Gate


class Wanted(NamedTuple):
    """Jobs of one type to be added."""

    type: str
    options: Options
    payloads: Sequence[bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.payloads))


class Adding:
    def __init__(
        self, jobs: Jobs, gate: Gate, once: Once, limits: Limits, counts: Counts, turns: FairSemaphore
    ) -> None:
        self._jobs = jobs
        self._gate = gate
        self._once = once
        self._limits = limits
        self._counts = counts
        self._turns = turns

    async def from_call(self, call: Call) -> Reply:
        """The seed's `add`."""
        text = await call.body.read()
        if len(text) < LARGE:
            found = payloads(call.kind, text, self._limits.jobs)
        else:
            found = await self._turns.call(call.tenant, lambda: payloads(call.kind, text, self._limits.jobs))
        options = _options(call.query, len(found)) if call.query else PLAIN
        wanted = Wanted(call.type, options, found)
        key = call.headers.get(b"idempotency-key")
        if key is None:
            return added(await self._add(call.tenant, wanted))
        return added(await self._add_once(call.tenant, [wanted], key, text + repr(options).encode()))

    async def all_of(self, call: Call, jobs: Sequence[Wanted], text: bytes) -> tuple[list[int], Reply | None]:
        """Jobs of several types: their ids; and what went wrong, if not all could be added, with the ids of those that
        were."""
        if len(jobs) > self._limits.jobs:
            raise too_many(self._limits.jobs)
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
        count, size = len(wanted.payloads), wanted.size
        async with self._gate.entered(tenant, count, size):
            ids = await self._stored(tenant, wanted)
        self._counts.added(tenant, count, size)
        return ids

    async def _stored(self, tenant: str, wanted: Wanted) -> list[int]:
        if not wanted.options.key:
            return await self._jobs.add(tenant, wanted.type, wanted.payloads, wanted.options)
        async with self._turns.of(tenant):  # it goes straight to the store
            return await self._jobs.add(tenant, wanted.type, wanted.payloads, wanted.options)

    async def _add_once(self, tenant: str, wanted: Sequence[Wanted], key: bytes, text: bytes) -> list[int]:
        """Straight into the store, which remembers the key with the jobs, in one transaction: all of them or none."""
        asked = Asked(tenant, wanted[0].type, key, text)
        found = await self._turns.call(tenant, lambda: self._once.known(asked))
        if found is not None:
            return found
        check_payloads(wanted)
        count, size = sum(len(one.payloads) for one in wanted), sum(one.size for one in wanted)
        async with self._gate.entered(tenant, count, size):
            ids = await self._turns.call(tenant, lambda: self._once.add(asked, tenant, wanted))
        self._counts.added(tenant, count, size)
        return ids


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
