"""What pollers say of their last look, for people: an item for each in every table that it looks at. These items have
another hash key than messages and no time, so no index has them, and no poller reads them."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from hipq.errors import HipqError
from hipq.job.when import SECOND
from hipq.version import __version__
from hipq.waiter.clients import AwsClients, AwsTarget, errors
from hipq.waiter.item import HASH, RANGE, Item, number
from hipq.waiter.tables import MessageTable

log: Final = logging.getLogger("hipq.waiter")

OFTEN: Final = 30 * SECOND
"""A poller tells of itself not more often: each time is a write that costs."""
LATE: Final = 60 * SECOND
"""How much later than it wanted a poller may look, before it is said to be late: looks take time."""
FORGOTTEN: Final = 86_400 * SECOND
"""A poller that has not looked for so long is deleted by the next one that starts."""
_LONGEST: Final = 500


class PollerNote(NamedTuple):
    """The last look of a poller at a table."""

    name: str
    """Its host and process."""
    at: int
    """In microseconds since 1970."""
    delay: float
    """Seconds until it looks again, at the latest."""
    sent: int
    """Messages that it has sent since its note before this one, from all its tables;"""
    failed: int
    """and those that it could not send at its last look."""
    problem: str = ""
    since: int = 0
    version: str = __version__

    def is_late(self, now: int) -> bool:
        return now > self.at + round(self.delay * SECOND) + LATE


class PollerNotes:
    def __init__(self, clients: AwsClients, scheduler: str) -> None:
        self._clients = clients
        self._hash = f"{scheduler} pollers"[-1024:]

    def write(self, table: MessageTable, note: PollerNote) -> None:
        """An update, because a poller need not be allowed to put items."""
        numbers = {"seen_at": number(note.at), "since": number(note.since), "delay": f"{note.delay:.3f}",
                   "sent": str(note.sent), "failed": str(note.failed)}  # fmt: skip
        texts = {"problem": note.problem[:_LONGEST], "version": note.version}
        values: Item = {f":{name}": {"N": value} for name, value in numbers.items()}
        values |= {f":{name}": {"S": value} for name, value in texts.items()}
        names = [*numbers, *texts]
        with errors(AwsTarget("dynamodb", table.name)):
            self._clients.dynamodb.update_item(
                TableName=table.name,
                Key=self._key(note.name),
                UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in names),
                ExpressionAttributeNames={f"#{name}": name for name in names},
                ExpressionAttributeValues=values,
            )

    def read(self, table: MessageTable) -> list[PollerNote]:
        """The last look of each poller, the latest first."""
        with errors(AwsTarget("dynamodb", table.name)):
            answer = self._clients.dynamodb.query(
                TableName=table.name,
                KeyConditionExpression=f"{HASH} = :hash",
                ExpressionAttributeValues={":hash": {"S": self._hash}},
            )
        return sorted(map(_note, answer["Items"]), key=lambda note: -note.at)

    def remove(self, table: MessageTable, name: str) -> None:
        with errors(AwsTarget("dynamodb", table.name)):
            self._clients.dynamodb.delete_item(TableName=table.name, Key=self._key(name))

    def forget_old(self, table: MessageTable, now: int) -> None:
        for note in self.read(table):
            if note.at < now - FORGOTTEN:
                self.remove(table, note.name)

    def _key(self, name: str) -> Item:
        return {HASH: {"S": self._hash}, RANGE: {"S": name}}


def own_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"[:200]


def _note(item: Item) -> PollerNote:
    def amount(name: str) -> float:
        return float(item.get(name, {}).get("N", 0))

    def text(name: str) -> Any:
        return item.get(name, {}).get("S", "")

    return PollerNote(
        text(RANGE), round(amount("seen_at") * SECOND), amount("delay"), int(amount("sent")), int(amount("failed")),
        text("problem"), round(amount("since") * SECOND), text("version"),
    )  # fmt: skip


class NotedLooks:
    """What one poller tells of its looks, not more often than people need it. What goes wrong with that is said once:
    messages are sent all the same."""

    def __init__(self, notes: PollerNotes, now: int, delay: float) -> None:
        self._notes, self._since, self._delay = notes, now, delay
        self._name = own_name()
        self._noted = 0
        self._sent = self._failed = 0
        self._is_silent = False

    def looked(self, tables: Iterable[MessageTable], now: int, sent: int, failed: int, problem: str) -> None:
        self._sent, self._failed = self._sent + sent, failed
        if now < self._noted + OFTEN:
            return
        delay = max(self._delay, OFTEN / SECOND)
        note = PollerNote(self._name, now, delay, self._sent, self._failed, problem, self._since)
        for table in tables:
            if not self._noted:
                self._quietly(self._notes.forget_old, table, now)
            self._quietly(self._notes.write, table, note)
        self._noted, self._sent = now, 0

    def ended(self, tables: Iterable[MessageTable]) -> None:
        for table in tables:
            self._quietly(self._notes.remove, table, self._name)

    def _quietly(self, write: Callable[..., None], *what: object) -> None:
        try:
            write(*what)
        except HipqError as error:
            if not self._is_silent:
                self._is_silent = True
                log.warning("waiter: the dashboard does not know of this poller: %s", error)
