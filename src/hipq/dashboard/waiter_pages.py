"""The waiter's pages: what is parked until when, and who carries it to SQS. They are not kept up to date by themselves:
each look is reads that AWS charges for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from hipq.dashboard import bodies
from hipq.dashboard.job_filter import when
from hipq.dashboard.masks import masked
from hipq.dashboard.more import More
from hipq.dashboard.seldom import Seldom
from hipq.dashboard.visit import PageRoute, Refused, Reply, Role, Visit, redirect
from hipq.errors import HipqError
from hipq.job.when import to_datetime
from hipq.waiter.item import Scheduled
from hipq.waiter.parked import DAYS, HOUR, HOURS, Parked
from hipq.waiter.poller_notes import PollerNote
from hipq.waiter.tables import MessageTable

if TYPE_CHECKING:
    from hipq.dashboard.site import Site
    from hipq.waiter import Waiter

PAGE: Final = 50
"""Messages of a list."""
TABLES: Final = 20
"""The most tables that are looked at for a page."""
PATIENCE: Final = 5.0
"""Seconds for which a page waits for AWS."""
REST: Final = 30.0
"""Seconds for which a look at a table is shown again: somebody may press reload all day."""
_READ: Final = 4_000
_SHOWN: Final = 120
"""Characters of a body in a list, and those that are looked through for what is masked."""
_DONE: Final = {
    "cancelled": "The message is deleted: it will not be sent.",
    "maybe": "The message is deleted. A poller died while it sent this message: it may arrive all the same.",
    "rescheduled": "The message has another time.",
}


class TableView(NamedTuple):
    """A table, as the page shows it."""

    name: str
    queues: list[str]
    at: int = 0
    """When it was looked at."""
    parked: Parked | None = None
    pollers: Sequence[PollerNote] = ()
    problem: str = ""
    making: str = ""
    """The command that makes it, if there is none."""


class WaiterPages:
    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._views: dict[str, Seldom[TableView]] = {}

    def page(self, site: Site, visit: Visit) -> Reply:
        by_table: dict[str, list[str]] = {}
        for queue in self._waiter.queues:
            by_table.setdefault(self._waiter.tables.name(queue), []).append(queue)
        after = visit.asked("after")
        rest = sorted(name for name in by_table if name > after)
        views = [self._view(name, by_table[name]) for name in rest[:TABLES]]
        now = self._waiter.clock.now()
        return site.render(
            "waiter.html", visit, now=now, tables=views, all=len(by_table), hours=_labels(HOUR, HOURS, now),
            days=_labels(24 * HOUR, DAYS, now), pollers=_pollers(views), rest=REST,
            done=_DONE.get(visit.asked("done"), ""),
            following=rest[TABLES - 1] if len(rest) > TABLES else "",
        )  # fmt: skip

    def messages(self, site: Site, visit: Visit) -> Reply:
        """Those of one table, the next one first."""
        table, queues = self._table(visit.asked("table"))
        found = self._waiter.parked.page(table, visit.asked("after") or None, PAGE + 1)
        now = self._waiter.clock.now()
        rows = [(one, _line(one.body, site.mask)) for one in found[:PAGE]]
        return site.render(
            "waiter_messages.html", visit, now=now, table=table.name, queues=queues, rows=rows,
            following=found[PAGE - 1].cursor if len(found) > PAGE else "",
        )  # fmt: skip

    def one(self, site: Site, visit: Visit, wrong: str = "") -> Reply:
        """A message whole, and what can be done to it."""
        table, queue, message = self._message(visit)
        attributes = {name: str(value.get("StringValue", "bytes")) for name, value in message.attributes.items()}
        now = self._waiter.clock.now()
        return site.render(
            "waiter_message.html", visit, status=400 if wrong else 200, now=now, table=table.name, queue=queue,
            message=message, body=bodies.shown(message.body, site.mask), attributes=masked(attributes, site.mask),
            error=masked(message.error, site.mask), wrong=wrong, done=_DONE.get(visit.asked("done"), ""),
            is_claimed=bool(message.claimed_by) and message.claimed_until >= now,
        )  # fmt: skip

    # -- changing ----------------------------------------------------------------------------------------------------
    def cancel(self, _site: Site, visit: Visit) -> Reply:
        queue, message_id = visit.sent("queue"), visit.sent("id")
        gone = self._waiter.cancel(self._known(queue), message_id)
        return redirect(
            visit.link("/waiter", done="maybe" if gone.maybe_sent else "cancelled"), {"queue": queue, "id": message_id}
        )

    def reschedule(self, site: Site, visit: Visit) -> Reply:
        queue, message_id = visit.sent("queue"), visit.sent("id")
        try:
            at = when(visit.sent("at").strip(), "the time", self._waiter.clock.now(), ahead=True)
            self._waiter.reschedule(self._known(queue), message_id, at=to_datetime(at))
        except HipqError as error:
            return self.one(site, visit._replace(query=visit.form), str(error))
        details = {"queue": queue, "id": message_id, "at": str(to_datetime(at))}
        return redirect(visit.link("/waiter/message", queue=queue, id=message_id, done="rescheduled"), details)

    # -- inside ------------------------------------------------------------------------------------------------------
    def _view(self, name: str, queues: list[str]) -> TableView:
        """Looked at now, or a while ago. AWS may take a minute to say nothing: so long no page is kept waiting."""
        seldom = self._views.setdefault(name, Seldom(partial(self._look, name, queues), least=REST))
        slow = "AWS has not answered yet: load the page again in a moment"
        return seldom.latest(PATIENCE, fresh=True) or TableView(name, queues, problem=slow)

    def _look(self, name: str, queues: list[str]) -> TableView:
        waiter, view = self._waiter, TableView(name, queues)
        try:
            table = waiter.tables.of(queues[0])
            if table is None:
                return view._replace(making=waiter.tables.making(queues[0]))
            now = waiter.clock.now()
            parked = waiter.parked.counted(table, now)
            return view._replace(at=now, parked=parked, pollers=waiter.poller_notes.read(table))
        except HipqError as error:
            return view._replace(problem=str(error))

    def _known(self, queue: str) -> str:
        if queue not in self._waiter.queues:
            raise Refused(404, f"this waiter does not know the queue {queue:.80}")
        return queue

    def _table(self, name: str) -> tuple[MessageTable, list[str]]:
        queues = [queue for queue in self._waiter.queues if self._waiter.tables.name(queue) == name]
        table = self._waiter.tables.of(queues[0]) if queues else None
        if table is None:
            raise Refused(404, f"this waiter has no table {name:.80}")
        return table, queues

    def _message(self, visit: Visit) -> tuple[MessageTable, str, Scheduled]:
        queue, message_id = self._known(visit.asked("queue")), visit.asked("id")
        table, _ = self._table(self._waiter.tables.name(queue))
        message = self._waiter.parked.get(table, message_id) if message_id else None
        if message is None:
            raise Refused(404, f"nothing waits under {message_id!r:.60}: it was sent or cancelled, or never was there")
        return table, queue, message


def _pollers(views: Sequence[TableView]) -> list[tuple[PollerNote, list[str]]]:
    """Each with the tables that it looks at, the latest look first."""
    found: dict[str, tuple[PollerNote, list[str]]] = {}
    for view in views:
        for note in view.pollers:
            latest, tables = found.get(note.name, (note, []))
            found[note.name] = max(latest, note, key=lambda one: one.at), [*tables, view.name]
    return sorted(found.values(), key=lambda one: -one[0].at)


def _labels(step: int, many: int, now: int) -> list[str]:
    """When each period begins."""
    form = "%H:%M" if step == HOUR else "%a %d"
    return [to_datetime(now + place * step).strftime(form) for place in range(many)]


def _line(body: str, mask: Collection[str]) -> str:
    """The beginning of a body, in one line."""
    return " ".join(str(masked(body[:_READ], mask)).split())[:_SHOWN]


def pages_of(waiter: Waiter, *, is_all: bool = False) -> More:
    """`is_all`: the dashboard has no database, and these pages only."""
    pages = WaiterPages(waiter)
    routes = (
        PageRoute("GET", "/waiter", Role.VIEW, pages.page),
        PageRoute("GET", "/waiter/messages", Role.VIEW, pages.messages),
        PageRoute("GET", "/waiter/message", Role.VIEW, pages.one),
        PageRoute("POST", "/waiter/cancel", Role.OPERATE, pages.cancel),
        PageRoute("POST", "/waiter/reschedule", Role.OPERATE, pages.reschedule),
    )
    start = PageRoute("GET", "/", Role.VIEW, lambda _site, visit: redirect(visit.link("/waiter")))
    return More((*routes, start) if is_all else routes, (("/waiter", "Waiter", Role.VIEW),), is_all=is_all)
