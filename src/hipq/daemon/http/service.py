"""What the HTTP front asks of the daemon behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from hipq.job.model import Row
from hipq.stores.protocols import Store
from hipq.stores.values import WaitingLane

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.daemon.accepted import Accepted
    from hipq.daemon.census import Census
    from hipq.daemon.handlers.handlers import Handlers
    from hipq.daemon.job_factory import Options
    from hipq.daemon.jobs import Page
    from hipq.daemon.ready import Ready
    from hipq.daemon.tenancy.backlog import Backlog
    from hipq.daemon.tenancy.tenants import Tenants
    from hipq.journal import Journal
    from hipq.sandbox import Handler


HEALTH: Final = ("ok", "behind", "refused", "stuck", "store away", "disk full", "broken")
"""What a daemon may say of itself: all is well; much of the journal waits; some jobs were refused by the database, and
are in the journal's quarantine; the database is there and takes none; it cannot be reached; the last post found no room
in the journal; nothing is accepted."""


class Feed(Protocol):
    """Where events come from."""

    def subscribe(self, tenant: str, last: str = "") -> AsyncIterator[dict[str, Any]]:
        """What happens to its jobs from now on, or since the event with this id. A reader that is too slow is told, and
        gets no more."""


class Jobs(Protocol):
    """Jobs of tenants. Verbs that are no coroutines may wait for the store."""

    async def add(self, tenant: str, jobtype: str, payloads: Sequence[bytes], options: Options) -> list[int]: ...
    def put(
        self, tenant: str, jobtype: str, payloads: Sequence[bytes], done: Callable[[list[int] | Exception], None]
    ) -> None: ...
    def get(self, tenant: str, job_id: int) -> Row: ...
    def payload(self, row: Row) -> bytes: ...
    def result(self, row: Row) -> bytes: ...
    def list(
        self, tenant: str, *, type: str = "", state: str = "", phase: str = "", code: str = "", key: str = "",
        after: int = 0, limit: int = 100,
    ) -> Page: ...  # fmt: skip
    def census(self, tenant: str) -> Census: ...
    def cancel(self, tenant: str, job_id: int, reason: str = "") -> Row: ...
    def retry(self, tenant: str, job_id: int) -> Row: ...
    def why(self, tenant: str, job_id: int) -> dict[str, Any]: ...
    def answer(
        self, tenant: str, type: str, key: str, data: bytes, *, answer_id: str = "", error: bool = False,
        attempt: int = 0,
    ) -> str: ...  # fmt: skip
    def is_awaited(self, tenant: str, type: str, key: str) -> bool: ...
    async def result_of(self, tenant: str, job_id: int, seconds: float) -> Row: ...
    def usage(self, tenants: Sequence[str] | None = None) -> Mapping[str, tuple[int, int]]: ...
    def lanes(self, tenant: str = "") -> Sequence[WaitingLane]: ...
    def seen(self, row: Row) -> dict[str, Any]: ...

    @property
    def events(self) -> Feed: ...


class Service(Protocol):
    """A daemon."""

    @property
    def app(self) -> Hipq: ...
    @property
    def store(self) -> Store: ...
    @property
    def jobs(self) -> Jobs: ...
    @property
    def tenants(self) -> Tenants: ...
    @property
    def backlog(self) -> Backlog: ...
    @property
    def ended(self) -> Backlog:
        """What has ended and is kept."""

    @property
    def handlers(self) -> Handlers: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def accepted(self) -> Accepted: ...
    def ready(self) -> Ready: ...
    def wrong_with(self, handler: Handler) -> str:
        """Why this handler's code cannot be read by its language, with the line; "" if it can, or nobody knows."""

    def health(self) -> str:
        """One of HEALTH."""
