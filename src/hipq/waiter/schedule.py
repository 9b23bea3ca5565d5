"""The messages that wait in the tables: list, cancel and reschedule them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from hipq.errors import Conflict, HipqError, Invalid, NoTable, NotFound, shown
from hipq.waiter.claims import FREE, found, free_at
from hipq.waiter.clients import AwsClients, AwsTarget, code, errors
from hipq.waiter.clock import AwsClock
from hipq.waiter.item import Item, Scheduled, from_item, key, number
from hipq.waiter.sending import due
from hipq.waiter.table_reader import TableReader
from hipq.waiter.tables import MessageTable, MessageTables

_CURSOR: Final = re.compile(r"-?[0-9.]+(E[+-]?\d+)?/.+", re.DOTALL)


class WaitingMessages:
    def __init__(
        self, clients: AwsClients, reader: TableReader, tables: MessageTables, clock: AwsClock, scheduler: str
    ) -> None:
        self._clients, self._reader, self._tables = clients, reader, tables
        self._clock, self._scheduler = clock, scheduler

    def list(self, queue: str, limit: int, after: str | Scheduled | None) -> Sequence[Scheduled]:
        """The queue's next messages, earliest first."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise Invalid(f"limit must be a number from 1 on, not {shown(limit)}")
        cursor = after.cursor if isinstance(after, Scheduled) else after
        if cursor is not None and (not isinstance(cursor, str) or not _CURSOR.fullmatch(cursor)):
            raise Invalid(f"after must be a message of the last list, or its cursor, not {shown(after)}")
        table = self._table(queue)
        pages = self._reader.all(table, cursor, min(limit, 1000))
        return list(islice((one for page in pages for one in page.messages if one.queue == queue), limit))

    def cancel(self, queue: str, job_id: str) -> Scheduled:
        """Delete a waiting message and return it. Conflict: a poller is sending it, so it is too late."""
        return self._changed(queue, job_id, "cancelled", "", {})

    def reschedule(self, queue: str, job_id: str, at: datetime | None, delay: float | timedelta | None) -> Scheduled:
        """Give a waiting message another time, and return it. Conflict: a poller is sending it, so it is too late."""
        if at is None and delay is None:
            raise Invalid("to what time? Give at= or delay=")
        due(0, at, delay)
        self._table(queue)  # DynamoDB's answer has set the clock
        return self._changed(
            queue,
            job_id,
            "put to another time",
            "SET perform_at = :at REMOVE claimed_by, claimed_until, retry_at, failures, #error",
            {":at": {"N": number(due(self._clock.now(), at, delay))}},
        )

    def _changed(self, queue: str, job_id: str, what: str, update: str, values: Item) -> Scheduled:
        if not isinstance(job_id, str) or not job_id:
            raise Invalid(f"job_id must be text, not {shown(job_id)}")
        table = self._table(queue)
        now = self._clock.now()
        call: dict[str, Any] = {
            "TableName": table.name,
            "Key": key(self._scheduler, job_id),
            "ConditionExpression": f"attribute_exists(job_id) AND {FREE} "
            "AND (NOT attribute_type(queue_name, :text) OR queue_name = :queue)",
            "ExpressionAttributeValues": {**free_at(now), ":queue": {"S": queue}, ":text": {"S": "S"}, **values},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            with errors(AwsTarget("dynamodb", table.name)):
                if update:
                    answer = self._clients.dynamodb.update_item(
                        UpdateExpression=update,
                        ReturnValues="ALL_NEW",
                        ExpressionAttributeNames={"#error": "error"},
                        **call,
                    )
                else:
                    answer = self._clients.dynamodb.delete_item(ReturnValues="ALL_OLD", **call)
                item = answer["Attributes"]
        except HipqError as error:
            if code(error) != "ConditionalCheckFailedException":
                raise
            raise _why(queue, job_id, what, found(error), table) from None
        return from_item(item, table.name)

    def _table(self, queue: str) -> MessageTable:
        table = self._tables.of(queue)
        if table is None:
            raise NoTable(
                f"queue {queue} has no DynamoDB table {self._tables.name(queue)}, so nothing of it waits; "
                f"make one with `{self._tables.making(queue)}`"
            )
        return table


def _why(queue: str, job_id: str, what: str, item: Item, table: MessageTable) -> HipqError:
    if item and from_item(item, table.name).queue == queue:
        return Conflict(f"{job_id} is being sent to queue {queue} right now, so it cannot be {what} any more")
    return NotFound(
        f"nothing of queue {queue} waits under {job_id!r:.60}: it was sent or cancelled already, or never was there"
    )
