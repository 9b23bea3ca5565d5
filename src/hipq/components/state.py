"""The state that all daemons of a store share: who they are, and how many jobs there are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hipq.components.names import Callback, jobtype_of, told
from hipq.daemon.census import Census
from hipq.daemon.job_factory import lane

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon

LEASE_SECONDS = 10.0


class State:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._store = daemon.store
        self.sysid = 0
        """The sysid that was reserved last, under which `Store` locks jobs; 0 = none."""

    def reserve_sysid(self, tempid: str, callback: Callback = None, *, seconds: float = LEASE_SECONDS) -> int | None:
        """A sysid that nobody else has, for so long; `tempid` is what people see it by."""

        def reserve() -> int:
            self.sysid = self._store.take_lease(seconds, tempid)
            return self.sysid

        return told(callback, reserve)

    def renew_sysid(self, sysid: int, callback: Callback = None, *, seconds: float = LEASE_SECONDS) -> bool | None:
        """False: the lease is over, and the sysid's jobs are somebody else's."""
        return told(callback, lambda: self._store.renew_lease(sysid, seconds))

    def release_sysid(self, sysid: int, callback: Callback = None) -> None:
        """The jobs that are still locked by this sysid run again elsewhere."""
        told(callback, lambda: self._released(sysid))

    def _released(self, sysid: int) -> None:
        self._store.renew_lease(sysid, 0)

    def jobs(self, tenant: str) -> dict[str, Counter[str]]:
        """How many jobs a tenant has, by jobtype: waiting, scheduled, running, retrying,
        waiting_for_answer, done. The first 100,000 that live, and that are done, are counted."""
        census = Census(self._store, self._daemon.queue.number, tenant)
        while census.step():
            pass
        return {jobtype_of(lane(tenant, name)): found for name, found in census.types.items()}
