"""Reading a table's items in the order of their times, page by page."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hipq.errors import TransportUnavailable
from hipq.job.when import SECOND
from hipq.waiter.clients import AwsClients, AwsTarget, errors
from hipq.waiter.item import HASH, INDEX, RANGE, TIME, Item, Scheduled, from_item, key, number
from hipq.waiter.tables import MessageTable

AT_ONCE: Final = 100
"""Items that DynamoDB returns in one call by their keys."""
PAGE: Final = 250
"""Items a poller reads in one page: few enough that the last of them has not changed when the poller reaches it."""
_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class ItemPage:
    messages: list[Scheduled]
    read_units: float


@dataclass(frozen=True, slots=True)
class TimesPage:
    times: list[int]
    """When messages are due, in order, in microseconds since 1970."""
    read_units: float
    is_more: bool


class TableReader:
    def __init__(self, clients: AwsClients, scheduler: str) -> None:
        self._clients, self._scheduler = clients, scheduler

    def due(self, table: MessageTable, until: int) -> Iterator[ItemPage]:
        """The items due by `until`. Later items cost nothing, because the index is ordered by time. A read may miss
        an item that was just put or show one that was just deleted; the claim finds that out."""
        return self._pages(table, f"{HASH} = :hash AND {TIME} <= :until", {":until": {"N": number(until)}}, Limit=PAGE)

    def all(self, table: MessageTable, after: str | None, at_most: int) -> Iterator[ItemPage]:
        """All items from the earliest on, or those behind the cursor `after` (`Scheduled.cursor`)."""
        start: dict[str, Any] = {"Limit": at_most}
        if after is not None:
            perform_at, _, job_id = after.partition("/")
            start["ExclusiveStartKey"] = {**key(self._scheduler, job_id), TIME: {"N": perform_at}}
        if table.local:
            start["ConsistentRead"] = True
        return self._pages(table, f"{HASH} = :hash", {}, **start)

    def times(self, table: MessageTable) -> Iterator[TimesPage]:
        """When the messages are due, from the earliest on. Nothing else is sent, though DynamoDB reads the items."""
        call: dict[str, Any] = {
            "TableName": table.name,
            "IndexName": INDEX,
            "KeyConditionExpression": f"{HASH} = :hash",
            "ExpressionAttributeValues": {":hash": {"S": self._scheduler}},
            "ProjectionExpression": TIME,
            "ReturnConsumedCapacity": "TOTAL",
        }
        while True:
            with errors(AwsTarget("dynamodb", table.name)):
                answer = self._clients.dynamodb.query(**call)
            times = [round(float(one[TIME]["N"]) * SECOND) for one in answer["Items"]]
            following = answer.get("LastEvaluatedKey")
            yield TimesPage(times, _units(answer.get("ConsumedCapacity")), bool(following))
            if not following:
                return
            call["ExclusiveStartKey"] = following

    def _pages(self, table: MessageTable, condition: str, values: Item, **more: Any) -> Iterator[ItemPage]:
        call: dict[str, Any] = {
            "TableName": table.name,
            "IndexName": INDEX,
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": {":hash": {"S": self._scheduler}, **values},
            "ReturnConsumedCapacity": "TOTAL",
            **more,
        }
        while True:
            with errors(AwsTarget("dynamodb", table.name)):
                answer = self._clients.dynamodb.query(**call)
            items, units = answer["Items"], _units(answer.get("ConsumedCapacity"))
            if items and not table.whole:
                items, extra = self._whole(table, items)
                units += extra
            yield ItemPage([from_item(item, table.name) for item in items], units)
            if not answer.get("LastEvaluatedKey"):
                return
            call["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _whole(self, table: MessageTable, items: list[Item]) -> tuple[list[Item], float]:
        """The whole items where the index has only parts, in the same order."""
        found: dict[str, Item] = {}
        units = 0.0
        for start in range(0, len(items), AT_ONCE):
            left: Any = {
                table.name: {"Keys": [{HASH: one[HASH], RANGE: one[RANGE]} for one in items[start:][:AT_ONCE]]}
            }
            for attempt in range(_TRIES):
                with errors(AwsTarget("dynamodb", table.name)):
                    answer = self._clients.dynamodb.batch_get_item(RequestItems=left, ReturnConsumedCapacity="TOTAL")
                found |= {one[RANGE]["S"]: one for one in answer["Responses"].get(table.name, ())}
                units += sum(map(_units, answer.get("ConsumedCapacity", ())))
                left = answer.get("UnprocessedKeys")
                if not left:
                    break
                # a busy DynamoDB returns only part of the items
                time.sleep(0.05 * 2**attempt * random.uniform(0.5, 1.0))
            else:
                raise TransportUnavailable(f"table {table.name}: DynamoDB gives only some of the items asked for")
        return [found[one[RANGE]["S"]] for one in items if one[RANGE]["S"] in found], units


def _units(said: Any) -> float:
    return float((said or {}).get("CapacityUnits", 0.0))
