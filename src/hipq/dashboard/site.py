"""The site: all its routes, its templates, and what it shows."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hipq.dashboard import words
from hipq.dashboard.board import Board
from hipq.dashboard.bulk import Operations
from hipq.dashboard.gate import Gate
from hipq.dashboard.headers import secured
from hipq.dashboard.masks import masked
from hipq.dashboard.more import More
from hipq.dashboard.once import LONGEST, Once
from hipq.dashboard.pages import answers, audit, bulk, door, job, jobs, overview, rules
from hipq.dashboard.pages import queue as queue_page
from hipq.dashboard.same_site import check_change
from hipq.dashboard.static_files import static_path
from hipq.dashboard.visit import PageRoute, Refused, Reply, Role, Visit, Visitor
from hipq.errors import Conflict, HipqError, Invalid, NotFound, SchemaError, StoreUnavailable, shown
from hipq.job.model import queue_of
from hipq.observe.auditing import record
from hipq.stores.password import without_password

if TYPE_CHECKING:
    from jinja2 import Environment

    from hipq.app import Hipq
    from hipq.queue import Queue
    from hipq.stores.protocols import Store

ROUTES: Final[tuple[PageRoute, ...]] = (
    *overview.ROUTES, *queue_page.ROUTES, *jobs.ROUTES, *bulk.ROUTES, *job.ROUTES, *answers.ROUTES, *rules.ROUTES,
    *audit.ROUTES, *door.ROUTES,
)  # fmt: skip
"""All routes there are: what a role may do is read off this table."""
_PAGES: Final = (
    ("/", "Overview", Role.VIEW),
    ("/jobs", "Jobs", Role.VIEW),
    ("/answers", "Answers", Role.VIEW),
    ("/rules", "Rules", Role.VIEW),
    ("/audit", "Audit", Role.ADMIN),
)
OPEN: Final = frozenset(route.pattern for route in ROUTES if route.role is Role.NOBODY)
"""The paths of what is served to those who are nobody, beside static files."""
_STATUS: Final = {Invalid: 400, NotFound: 404, Conflict: 409, StoreUnavailable: 503, SchemaError: 503}


class Site:
    """What a dashboard shows: one instance, or all instances of a database."""

    def __init__(
        self, apps: Sequence[Hipq], *, mask: Collection[str] = (), read_only: bool = False, gate: Gate | None = None,
        polls: bool = False, more: More | None = None,
    ) -> None:  # fmt: skip
        """`mask`: names of fields whose values nobody sees, wherever they are in a payload, a result or an answer.
        `gate`: who may come in; without one, nobody. `polls`: pages ask again, since their server has no streams.
        `more`: pages that only its host knows."""
        self.apps = list(apps)
        if isinstance(mask, str) or not all(isinstance(name, str) and name for name in mask):
            raise Invalid(f'mask= is a list of names of fields, like ["card"], not {shown(mask)}')
        self.mask = frozenset(name.lower() for name in mask)
        self.read_only = read_only
        self.polls = polls
        self.gate = gate or Gate()
        self.board = Board(self)
        self.operations = Operations()
        self._once = Once()
        self._more = more or More()
        routes = (*(door.ROUTES if self._more.is_all else ROUTES), *self._more.routes)
        self._patterns = [(route, _compiled(route.pattern)) for route in routes]

    @property
    def store(self) -> Store:
        """The database: instances that are shown together share one."""
        return self.apps[0].store

    @property
    def where(self) -> str:
        """The database, without a password; "" = there is none."""
        if not self.apps:
            return ""
        try:
            return self.store.url
        except HipqError:  # the page that says so is to be shown all the same
            return without_password(self.apps[0].url)

    def pages(self, visit: Visit) -> list[tuple[str, str]]:
        """The pages that the navigation names for this visitor: paths and names."""
        named = self._more.pages if self._more.is_all else (*_PAGES[:-1], *self._more.pages, _PAGES[-1])
        return [(path, name) for path, name, role in named if visit.visitor.role >= role]

    def lets(self, visit: Visit, role: str) -> bool:
        """Whether the visitor may change here what takes this role."""
        return visit.may(role) and not self.read_only

    # -- queues -----------------------------------------------------------------------------------------------------
    def name(self, queue: Queue) -> str:
        """What a queue is called here: with its instance's name in front, if there are several instances."""
        return f"{queue.app.name}.{queue.name}" if len(self.apps) > 1 else queue.name

    @property
    def queues(self) -> dict[str, Queue]:
        """All queues, by what they are called here."""
        return {self.name(queue): queue for app in self.apps for queue in app.queues}

    def queue(self, name: str) -> Queue:
        found = self.queues.get(name)
        if found is None:
            raise NotFound(f"there is no queue {name}")
        return found

    def queue_of(self, job_id: int) -> Queue:
        """The queue that this id is of, whether or not there is such a job."""
        for queue in self.queues.values():
            if queue_of(job_id) in queue.numbers:
                return queue
        raise NotFound(f"there is no job {job_id}")

    # -- replies ----------------------------------------------------------------------------------------------------
    def has(self, path: str) -> bool:
        """Whether there is something at this path, for whatever method."""
        return any(pattern.fullmatch(path) for _, pattern in self._patterns)

    def find(self, method: str, path: str) -> tuple[PageRoute, dict[str, str]]:
        """The route of a request, and what stands in its path."""
        allowed = set()
        for route, pattern in self._patterns:
            if match := pattern.fullmatch(path):
                if route.method == ("GET" if method == "HEAD" else method):
                    return route, match.groupdict()
                allowed.add(route.method)
        if allowed:
            raise Refused(405, f"this page takes {' and '.join(sorted(allowed))} only")
        raise Refused(404, "there is no such page")

    def reply(self, visit: Visit) -> Reply:
        """What this visit gets; whatever is wrong is a page that says so."""
        reply = self._answered(visit)
        return secured(reply, cookies=visit.cookies if reply.type.startswith("text/html") else ())

    def _answered(self, visit: Visit) -> Reply:
        if visit.visitor.role is Role.NOBODY and visit.path not in OPEN:
            return door.turn_away(self, visit)
        try:
            return self._served(visit)
        except Refused as refused:
            status, sentence = refused.status, refused.sentence
        except msgspec.DecodeError as error:
            status, sentence = 409, f"another program has written what cannot be read here: {error}"
        except HipqError as error:
            status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
            sentence = str(error)
        if visit.visitor.role is Role.NOBODY:
            return door.refused(self, visit, status, sentence)
        return self.render("refused.html", visit, status=status, sentence=sentence)

    def _served(self, visit: Visit) -> Reply:
        route, params = self.find(visit.method, visit.path)
        visit = visit._replace(params=params)
        if route.method == "GET":
            _check_role(visit, route)
            return route.reply(self, visit)
        check_change(visit)
        if self.read_only and route.role is not Role.NOBODY:
            raise Refused(403, "this dashboard is read-only")
        try:
            _check_role(visit, route)
        except Refused as refused:
            self.record(visit, action_of(route), {"refused": refused.sentence})
            raise
        form = visit.sent("once")[:LONGEST]
        if not form or route.role is Role.NOBODY:  # the reply to a login is a session: nobody else gets it
            return self._changed(visit, route)
        return self._once.reply((visit.visitor.name, visit.path, form), lambda: self._changed(visit, route))

    def _changed(self, visit: Visit, route: PageRoute) -> Reply:
        reply = route.reply(self, visit)
        if reply.status < 400 and route.role is not Role.NOBODY:
            self.record(visit, action_of(route), reply.details)
        return reply

    def record(self, visit: Visit, action: str, details: Mapping[str, object]) -> None:
        """Put into the audit log what this visitor did, or was refused."""
        name, role = visit.visitor
        store = self.store if self.apps else None
        record(store, "dashboard", name, role.name.lower(), visit.address, action, visit.path, details)

    def shown(self, value: Any) -> Any:
        """A payload, a result, an answer, an error or a progress as people may see it: without masked fields."""
        return masked(value, self.mask)

    def render(self, template: str, visit: Visit, *, status: int = 200, **values: Any) -> Reply:
        def static(name: str) -> str:
            return visit.base + static_path(name)

        found = _templates(self._more.package).get_template(template)
        now_ms = time.time_ns() // 1_000_000
        text = found.render(site=self, visit=visit, status=status, static=static, now_ms=now_ms, **values)
        return Reply(status, text.encode("utf-8", "replace"))


@cache
def _templates(more: str) -> Environment:
    """The templates of hipq, and those of this package; compiled once, however many dashboards a process has."""
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError:
        raise Invalid("the dashboard needs Jinja2: pip install 'hipq[dashboard]'") from None
    templates = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in ("hipq.dashboard", more) if package]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(words.FILTERS)
    return templates


def action_of(route: PageRoute) -> str:
    """What a route does, in words: "jobs cancel" for /jobs/{id}/cancel."""
    return " ".join(part for part in route.pattern.split("/") if part and not part.startswith("{"))


def _check_role(visit: Visit, route: PageRoute) -> None:
    if visit.visitor.role < route.role:
        raise Refused(403, f"this takes the role {route.role.name.lower()}")


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(
        f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part)
        for part in re.split(r"(\{\w+\})", pattern)
    ))  # fmt: skip


__all__ = ["ROUTES", "Site", "Visitor"]
