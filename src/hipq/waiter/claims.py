"""Which poller may send an item: one at a time, until its claim runs out.

Every write of a waiting item names the state it was read in, or the poller that claimed it, and changes nothing if that
does not match. So two pollers never both send an item, a cancel never hits an item that is being sent, and a poller
that died leaves nothing behind but a claim that runs out.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from hipq.errors import HipqError
from hipq.job.when import SECOND
from hipq.waiter.clients import AwsClients, AwsTarget, code, errors
from hipq.waiter.clock import AwsClock
from hipq.waiter.item import Item, Scheduled, key, number
from hipq.waiter.tables import MessageTable

CLAIM: Final = 180 * SECOND
"""How long a poller may hold an item. The next poller's look takes what a dead one left, still before it is due."""
FREE: Final = "(attribute_not_exists(claimed_by) OR NOT attribute_type(claimed_until, :number) OR claimed_until < :now)"
"""The condition that no poller is sending the item. A claim without an end does not count: nobody could ever send
the item."""

_FIRST_RETRY: Final = 300 * SECOND
_LAST_RETRY: Final = 24 * 3600 * SECOND


def free_at(now: int) -> Item:
    """The values that the condition FREE names."""
    return {":now": {"N": number(now)}, ":number": {"S": "N"}}


class ClaimResult(Enum):
    MINE = "mine"
    OTHERS = "another poller has it, or it was put to another time"
    GONE = "it was sent or cancelled"


class ItemClaims:
    def __init__(self, clients: AwsClients, clock: AwsClock, scheduler: str) -> None:
        self._clients, self._clock, self._scheduler = clients, clock, scheduler

    def take(self, table: MessageTable, message: Scheduled, token: str) -> ClaimResult:
        """Claim the item. The same token may claim it again, because boto3 repeats a call whose answer was lost."""
        now = self._clock.now()
        there = self._write(
            table,
            message,
            f"perform_at = :seen AND ({FREE} OR claimed_by = :me)",
            {":seen": {"N": message.perform_at}, ":me": {"S": token}, ":until": {"N": number(now + CLAIM)},
             **free_at(now)},
            update="SET claimed_by = :me, claimed_until = :until",
        )  # fmt: skip
        if there is None:
            return ClaimResult.MINE
        return ClaimResult.OTHERS if there else ClaimResult.GONE

    def done(self, table: MessageTable, message: Scheduled, token: str) -> bool:
        """Delete an item that was sent. False: the claim had run out and another poller has the item now, so it may
        be sent again."""
        return not self._write(table, message, "claimed_by = :me", {":me": {"S": token}})

    def give_back(self, table: MessageTable, message: Scheduled, token: str) -> None:
        """Release an item that was certainly not sent, so that the next poller may try."""
        self._write(
            table, message, "claimed_by = :me", {":me": {"S": token}}, update="REMOVE claimed_by, claimed_until"
        )

    def put_off(self, table: MessageTable, message: Scheduled, token: str, why: str) -> None:
        """Keep an item that cannot be sent as it is, with the reason, and try it less and less often."""
        wait = min(_FIRST_RETRY << min(message.failures, 20), _LAST_RETRY)
        self._write(
            table,
            message,
            "perform_at = :seen AND (attribute_not_exists(claimed_by) OR claimed_by = :me)",
            {":seen": {"N": message.perform_at}, ":me": {"S": token}, ":why": {"S": why[:400]}, ":one": {"N": "1"},
             ":retry": {"N": number(self._clock.now() + wait)}},
            update="SET #error = :why, retry_at = :retry ADD failures :one REMOVE claimed_by, claimed_until",
            names={"#error": "error"},
        )  # fmt: skip

    def _write(
        self,
        table: MessageTable,
        message: Scheduled,
        condition: str,
        values: Item,
        *,
        update: str = "",
        names: Any = None,
    ) -> Item | None:
        """Write if the condition holds. None: it was written. Otherwise the item that is there instead; {} = no
        item."""
        call: dict[str, Any] = {
            "TableName": table.name,
            "Key": key(self._scheduler, message.job_id),
            "ConditionExpression": condition,
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if names:
            call["ExpressionAttributeNames"] = names
        try:
            with errors(AwsTarget("dynamodb", table.name)):
                if update:
                    self._clients.dynamodb.update_item(UpdateExpression=update, **call)
                else:
                    self._clients.dynamodb.delete_item(**call)
        except HipqError as error:
            if code(error) != "ConditionalCheckFailedException":
                raise
            return found(error)
        return None


def found(error: HipqError) -> Item:
    """The item whose condition did not hold; {} = there is no such item."""
    item: Item = getattr(error.__cause__, "response", {}).get("Item") or {}
    return item
