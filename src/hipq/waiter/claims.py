"""Who may send an item: one poller at a time, until its claim runs out.

Every write of an item that waits names what it was when it was read, or who claimed it; what matches nothing changes
nothing. So two pollers never both send it, a cancel never hits what is being sent, and a poller that died leaves
nothing behind but a claim that runs out.
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
"""How long a poller has for what it took. What it left is taken by the next one's look, still before it is due."""
FREE: Final = "(attribute_not_exists(claimed_by) OR NOT attribute_type(claimed_until, :number) OR claimed_until < :now)"
"""The condition that no poller is sending it. A claim without an end is none: nobody would ever send it."""

_FIRST_RETRY: Final = 300 * SECOND
_LAST_RETRY: Final = 24 * 3600 * SECOND


def free_at(now: int) -> Item:
    """The values in FREE."""
    return {":now": {"N": number(now)}, ":number": {"S": "N"}}


class ClaimResult(Enum):
    MINE = "mine"
    OTHERS = "another poller has it, or it was put to another time"
    GONE = "it was sent or cancelled"


class ItemClaims:
    def __init__(self, clients: AwsClients, clock: AwsClock, scheduler: str) -> None:
        self._clients, self._clock, self._scheduler = clients, clock, scheduler

    def take(self, table: MessageTable, message: Scheduled, token: str) -> ClaimResult:
        """Claim it. The same token may claim it again: the library asks twice when an answer is lost."""
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
        """Delete what was sent. False: the claim had run out and another poller has it now, so it may be sent again."""
        return not self._write(table, message, "claimed_by = :me", {":me": {"S": token}})

    def give_back(self, table: MessageTable, message: Scheduled, token: str) -> None:
        """It was certainly not sent: whoever looks next may try."""
        self._write(
            table, message, "claimed_by = :me", {":me": {"S": token}}, update="REMOVE claimed_by, claimed_until"
        )

    def put_off(self, table: MessageTable, message: Scheduled, token: str, why: str) -> None:
        """It cannot be sent as it is: kept, with the reason, and tried less and less often."""
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
        """None: done. Else nothing was changed, and this is what is there: {} = nothing."""
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
    """The item whose condition did not hold; {} = there is none."""
    item: Item = getattr(error.__cause__, "response", {}).get("Item") or {}
    return item
