"""Adding jobs at once: what most requests want, without a task, a future or a route of their own.

Only what needs no question: the token is known, the body is here, there is no key. Everything else, and whatever is
wrong with a request, is left to the usual way (`Api`), which says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.daemon.http.bodies import payloads
from hipq.daemon.http.reply import Reply, added
from hipq.daemon.http.request import kind_of
from hipq.daemon.http.routes import ADD
from hipq.daemon.tenancy.tenants import Known, is_jobtype_name
from hipq.daemon.written import SMALL

if TYPE_CHECKING:
    from hipq.daemon.http.api import Api
    from hipq.daemon.tenancy.authenticator import Authenticator
    from hipq.daemon.tenancy.quotas import Gate

UNUSUAL: Final = frozenset({b"idempotency-key", b"content-encoding", b"transfer-encoding", b"origin", b"expect"})


class Head(NamedTuple):
    """What the head of such a request says."""

    tenant: str
    jobtype: str
    kind: str
    known: Known
    """By which it was let in."""


class AtOnce:
    def __init__(self, api: Api, door: Authenticator, gate: Gate) -> None:
        self._api = api
        self._door = door
        self._gate = gate
        self._most = min(api.limits.body, SMALL)

    def head(self, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Head | None:
        """Of a POST; None if it is not for here."""
        parts = url.split(b"/")
        if len(parts) != 5 or parts[0] or parts[2] != b"job" or parts[4] != b"add":
            return None
        said = dict(headers)
        if len(said) < len(headers):
            return None
        length = said.get(b"content-length", b"")
        if not UNUSUAL.isdisjoint(said) or not length.isdigit() or len(length) > 9 or int(length) > self._most:
            return None
        if self._api.strange(said) is not None:
            return None
        tenant, jobtype = parts[1].decode("latin-1"), parts[3].decode("latin-1")
        known = self._api.service.tenants.latest  # before the look: it may be another one behind it
        caller = self._door.quickly(said.get(b"authorization", b""))
        if caller is None or not self._door.may_act_for(caller, tenant) or not is_jobtype_name(jobtype):
            return None
        return Head(tenant, jobtype, kind_of(said), known)

    def add(self, head: Head, body: bytes, reply: Callable[[Reply], None]) -> bool:
        """Whether the jobs in this body are taken: then `reply` is called later, when they are on disk or cannot be."""
        if len(body) > self._most or not self._door.still_knows(head.known):
            return False  # its token may have been revoked

        def done(outcome: list[int] | Exception) -> None:
            self._api.held.give(head.tenant, len(body))
            if isinstance(outcome, Exception):
                self._gate.leave(head.tenant, count, size)
                said = self._api.refused(ADD, outcome)
            else:
                self._gate.kept(head.tenant, count, size)
                self._api.counts.added(head.tenant, count, size)
                said = added(outcome)
            self._api.count(ADD, head.tenant, said)
            reply(said)

        try:
            found = payloads(head.kind, body, self._api.limits.jobs)
            count, size = len(found), sum(map(len, found))
            self._api.held.take(head.tenant, len(body))  # until it is on disk
        except Exception:
            return False  # nothing has happened; the usual way says what is wrong
        try:
            if self._gate.enter_now(head.tenant, count, size):
                try:
                    self._api.jobs.put(head.tenant, head.jobtype, found, done)
                    return True
                except Exception:
                    self._gate.leave(head.tenant, count, size)
        except Exception:
            pass
        self._api.held.give(head.tenant, len(body))
        return False
