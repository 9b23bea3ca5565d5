"""Handlers: what the jobs of a tenant's types are run by, in which versions, what differs between two of them, and what
went wrong last."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.daemon.handlers.described import described, difference, settings, written
from hipq.daemon.handlers.handlers import PARTS
from hipq.dashboard import looking
from hipq.dashboard.job_filter import searches
from hipq.dashboard.visit import Refused, Reply, Visit
from hipq.errors import shown
from hipq.job.fault import Fault
from hipq.job.model import Brief
from hipq.job.states import NONE, Code
from hipq.sandbox import Handler

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon
    from hipq.dashboard.site import Site

ROWS: Final = 50
"""Handlers of a page."""
ERRORS: Final = 5
"""The last errors, of each code that a job with an error may have."""
SHOWN: Final = 100_000
"""Characters of one part of a source that are shown."""
COMPARED: Final = 1_000
"""Lines of each of two sources that are compared: with more, comparing may take seconds."""
_ERROR: Final = 200


class Listed(NamedTuple):
    tenant: str
    type: str
    bytes: int
    """Of all versions that are kept."""
    newest: Handler | None
    """None: it was deleted."""


class Went(NamedTuple):
    """How a job went wrong."""

    row: Brief
    error: str


class HandlerPages:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def every(self, site: Site, visit: Visit) -> Reply:
        tenant, after = visit.asked("tenant"), tuple(visit.asked("after").split("/", 1))
        found = sorted(
            (name, jobtype, size) for name, sizes in self._daemon.handlers.sizes().items()
            if tenant in ("", name) for jobtype, size in sizes.items()
        )  # fmt: skip
        left = [one for one in found if one[:2] > after]
        rows = [Listed(*one, self._daemon.handlers.get(*one[:2])) for one in left[:ROWS]]
        following = "/".join(left[ROWS - 1][:2]) if len(left) > ROWS else ""
        return site.render(
            "handlers.html", visit, now=site.store.now(), all=len(found), tenant=tenant, rows=rows,
            after=visit.asked("after"), following=following,
        )  # fmt: skip

    def one(self, site: Site, visit: Visit) -> Reply:
        tenant, jobtype = visit.params["tenant"], visit.params["type"]
        versions = self._daemon.handlers.versions(tenant, jobtype)
        if not versions:
            raise Refused(404, f"tenant {shown(tenant)} has no handler of {shown(jobtype)}")
        version = _of(versions, visit.asked("version", versions[0].id))
        against = _of(versions, visit.asked("against")) if visit.asked("against") else None
        return site.render(
            "handler.html", visit, now=site.store.now(), tenant=tenant, type=jobtype, versions=versions,
            version=version, against=against, compared=COMPARED, most=SHOWN, errors=_errors(site, tenant, jobtype),
            sources=_sources(version), policy=settings(described(version)),
            diff=compared(against, version) if against else [],
            is_tenant=tenant in self._daemon.tenants.known().tenants,
        )  # fmt: skip


def _of(versions: list[Handler], id: str) -> Handler:
    for one in versions:
        if one.id == id:
            return one
    raise Refused(404, f"this handler has no version {shown(id)}: it was there once, perhaps, and newer ones came")


def compared(before: Handler, after: Handler) -> list[str] | None:
    """What differs, as lines like those of `diff -u`; None: they are too long to be compared here."""
    texts = written(described(before)), written(described(after))
    if any(len(text) > SHOWN or text.count("\n") >= COMPARED for text in texts):
        return None
    return _diff(*texts, before.id, after.id)


@lru_cache(16)  # a page is rendered again and again while somebody looks, and these do not change
def _diff(before: str, after: str, old: str, new: str) -> list[str]:
    return difference(before, after, f"version {old}", f"version {new}")


def _sources(handler: Handler) -> list[tuple[str, str]]:
    return [(part, getattr(handler, part)) for part in PARTS if getattr(handler, part)]


def _errors(site: Site, tenant: str, jobtype: str) -> list[Went]:
    """The last jobs with an error, the newest first. Looking for them stops when it takes long."""
    found: list[Brief] = []
    for code in (Code.RETRY, Code.FAILED, Code.ERROR):
        wanted = searches(site, {"tenant": tenant, "type": jobtype, "code": code})
        found += looking.page(site.store, wanted, {}, ERRORS, looking.SECONDS / 3).rows
    found.sort(key=lambda row: -row.update_time)
    return [Went(row, _error(site, row)) for row in found]


def _error(site: Site, row: Brief) -> str:
    if row.error == NONE:
        return ""
    return str(site.shown(Fault.load(row.error).told)).strip().partition("\n")[0][:_ERROR]
