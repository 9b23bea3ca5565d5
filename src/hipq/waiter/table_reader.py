"""Items out of a table, in the order of their times, page by page."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hipq.errors import TransportUnavailable
from hipq.waiter.clients import AwsClients, AwsTarget, errors
from hipq.waiter.item import HASH, INDEX, RANGE, TIME, Item, Scheduled, from_item, key, number
from hipq.waiter.tables import MessageTable

AT_ONCE: Final = 100
"""Items that DynamoDB gives at once by their keys."""
PAGE: Final = 250
"""Items that a poller reads at once: few enough that what it saw is still so when it comes to the last of them."""
_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class ItemPage:
    messages: list[Scheduled]
    read_units: float


class TableReader:
    def __init__(self, clients: AwsClients, scheduler: str) -> None:
        self._clients, self._scheduler = clients, scheduler

    def due(self, table: MessageTable, until: int) -> Iterator[ItemPage]:
        """What is due by then. What is later costs nothing: the index is in the order of time. A read may miss what was
        put a moment ago, or show what was deleted; a claim then says so."""
        return self._pages(table, f"{HASH} = :hash AND {TIME} <= :until", {":until": {"N": number(until)}}, Limit=PAGE)

    def all(self, table: MessageTable, after: str | None, at_most: int) -> Iterator[ItemPage]:
        """From the earliest on, or from behind this one (`Scheduled.cursor`)."""
        start: dict[str, Any] = {"Limit": at_most}
        if after is not None:
            perform_at, _, job_id = after.partition("/")
            start["ExclusiveStartKey"] = {**key(self._scheduler, job_id), TIME: {"N": perform_at}}
        if table.local:
            start["ConsistentRead"] = True
        return self._pages(table, f"{HASH} = :hash", {}, **start)

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
        """The items that an index shows only in part, in the same order."""
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
                time.sleep(0.05 * 2**attempt * random.uniform(0.5, 1.0))  # AWS gives part of it when it is busy
            else:
                raise TransportUnavailable(f"table {table.name}: DynamoDB gives only some of the items asked for")
        return [found[one[RANGE]["S"]] for one in items if one[RANGE]["S"] in found], units


def _units(said: Any) -> float:
    return float((said or {}).get("CapacityUnits", 0.0))
