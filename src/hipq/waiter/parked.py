"""What waits in a table, for people: how many messages until when, and the messages themselves a page at a time. Each
look reads so many items at most, since reading is what AWS charges for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hipq.job.when import SECOND
from hipq.waiter.clients import AwsClients, AwsTarget, errors
from hipq.waiter.item import HASH, RANGE, Scheduled, from_item
from hipq.waiter.table_reader import TableReader
from hipq.waiter.tables import MessageTable

MOST: Final = 10_000
"""Messages that are counted in a table."""
HOUR: Final = 3600 * SECOND
HOURS: Final = 24
DAYS: Final = 14


class Parked(NamedTuple):
    """The messages that wait in a table."""

    counted: int
    until: int
    """Only those that are due up to this moment were counted; 0 = these are all."""
    overdue: int
    """Messages whose time has come, and that nobody has sent yet."""
    next_due: int
    """When the first one is due; 0 = there is none."""
    hours: list[int]
    """Messages of each of the next hours, from now on;"""
    days: list[int]
    """and of each of the next days."""
    later: int
    """Those that are due after these days."""
    read_units: float


class ParkedMessages:
    def __init__(self, clients: AwsClients, reader: TableReader, scheduler: str) -> None:
        self._clients, self._reader, self._scheduler = clients, reader, scheduler

    def counted(self, table: MessageTable, now: int) -> Parked:
        """The earliest come first, so that a table with millions of them is known as far as it was read."""
        times, units, is_all = list[int](), 0.0, True
        for page in self._reader.times(table):
            room = MOST - len(times)
            times += page.times[:room]
            units += page.read_units
            if len(page.times) > room or (page.is_more and len(times) == MOST):
                is_all = False
                break
        hours, days, later = [0] * HOURS, [0] * DAYS, 0
        for at in times:
            place = max(at - now, 0) // HOUR
            if place < HOURS:
                hours[place] += 1
            if place < 24 * DAYS:
                days[place // 24] += 1
            else:
                later += 1
        overdue = sum(at <= now for at in times)
        first = times[0] if times else 0
        return Parked(len(times), 0 if is_all else times[-1], overdue, first, hours, days, later, units)

    def page(self, table: MessageTable, after: str | None, limit: int) -> Sequence[Scheduled]:
        """The messages of all queues that have this table, earliest first."""
        found: list[Scheduled] = []
        for page in self._reader.all(table, after, limit):  # large messages come a few at a time
            found += page.messages
            if len(found) >= limit:
                break
        return found[:limit]

    def get(self, table: MessageTable, job_id: str) -> Scheduled | None:
        """One message. A query, because a program that reads tables need not be allowed anything else."""
        with errors(AwsTarget("dynamodb", table.name)):
            answer = self._clients.dynamodb.query(
                TableName=table.name,
                ConsistentRead=True,
                KeyConditionExpression=f"{HASH} = :hash AND {RANGE} = :id",
                ExpressionAttributeValues={":hash": {"S": self._scheduler}, ":id": {"S": job_id}},
            )
        items = answer["Items"]
        return from_item(items[0], table.name) if items else None
