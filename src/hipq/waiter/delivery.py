"""Sending a batch of messages to SQS, and the outcome of each."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hipq.errors import HipqError, Invalid
from hipq.job.when import SECOND
from hipq.waiter.claims import CLAIM
from hipq.waiter.clients import AwsClients, AwsTarget, code, errors
from hipq.waiter.clock import AwsClock
from hipq.waiter.destinations import Destination, Destinations
from hipq.waiter.item import Scheduled
from hipq.waiter.limits import BATCH, LARGEST, message_size
from hipq.waiter.sending import parts

PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between tries of messages that SQS did not take for reasons of its own."""
IN_TIME: Final = CLAIM // 3
"""No call begins later than this after the claim, because another poller might have claimed the messages before they
arrive."""

_SINGLE: Final = frozenset(
    {"BatchRequestTooLong", "InvalidMessageContents", "InvalidParameterValue", "InvalidAttributeValue"}
)
_MISSING: Final = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


@dataclass(slots=True)
class Outcome:
    sent: list[Scheduled] = field(default_factory=list)
    refused: list[tuple[Scheduled, str]] = field(default_factory=list)
    """Messages that SQS will never take, each with the reason."""
    unsent: list[Scheduled] = field(default_factory=list)
    """Messages that were certainly not sent and that SQS may take later."""
    unsure: list[Scheduled] = field(default_factory=list)
    """Messages of which SQS did not say whether it has them."""
    problem: str = ""
    """What is wrong with the queue, so that no further messages are tried."""


def batches(messages: Sequence[Scheduled]) -> list[list[Scheduled]]:
    """The messages in as few batches as SQS allows."""
    made: list[list[Scheduled]] = []
    size = 0
    for message in messages:
        more = message_size(message.body, message.attributes)
        if not made or len(made[-1]) == BATCH or size + more > LARGEST:
            made.append([])
            size = 0
        made[-1].append(message)
        size += more
    return made


class Delivery:
    def __init__(self, clients: AwsClients, destinations: Destinations, clock: AwsClock) -> None:
        self._clients, self._destinations, self._clock = clients, destinations, clock

    def send(self, destination: Destination, messages: list[Scheduled], claimed: int) -> Outcome:
        """Send messages that were claimed at `claimed`, and retry those that may still succeed."""
        outcome = Outcome()
        left = messages
        for pause in (*PAUSES, 0.0):
            if not left:
                break
            left = self._once(destination, left, outcome, claimed)
            if left:
                time.sleep(pause * random.uniform(0.5, 1.0))
        outcome.unsent += left
        if left and not outcome.problem:
            outcome.problem = f"queue {destination.name}: SQS took {len(messages) - len(left)} of {len(messages)}"
        return outcome

    def _once(
        self, destination: Destination, messages: list[Scheduled], outcome: Outcome, claimed: int
    ) -> list[Scheduled]:
        """Send once; returns the messages to try again."""
        if self._clock.now() - claimed > IN_TIME:
            return messages
        try:
            with errors(AwsTarget("sqs", destination.name)):
                answer = self._clients.sqs.send_message_batch(
                    QueueUrl=destination.url, Entries=self._entries(destination, messages)
                )
        except HipqError as error:
            return self._failed(destination, messages, outcome, error, claimed)
        return _sorted(messages, answer, outcome)

    def _entries(self, destination: Destination, messages: list[Scheduled]) -> list[dict[str, Any]]:
        now = self._clock.now()
        return [
            {"Id": str(n), **parts(one, None if destination.fifo else math.ceil((one.due - now) / SECOND))}
            for n, one in enumerate(messages)
        ]

    def _failed(
        self, destination: Destination, messages: list[Scheduled], outcome: Outcome, error: HipqError, claimed: int
    ) -> list[Scheduled]:
        """Handle a batch that SQS refused as a whole: it is halved, so that one bad message does not keep the others
        from being sent."""
        said = code(error)
        if isinstance(error, Invalid) or any(said.endswith(one) for one in _SINGLE):
            if len(messages) == 1:
                outcome.refused.append((messages[0], str(error)))
                return []
            half = len(messages) // 2
            return [
                *self._once(destination, messages[:half], outcome, claimed),
                *self._once(destination, messages[half:], outcome, claimed),
            ]
        outcome.problem = str(error)
        if said in _MISSING:
            self._destinations.forget(destination.name)
        if said and not _server_fault(error):
            outcome.unsent += messages
        else:
            outcome.unsure += messages  # SQS may have the messages: the claims keep other pollers away for a while
        return []


def _sorted(messages: list[Scheduled], answer: dict[str, Any], outcome: Outcome) -> list[Scheduled]:
    again: list[Scheduled] = []
    failed = {one["Id"]: one for one in answer.get("Failed", ())}
    confirmed = {one["Id"] for one in answer.get("Successful", ())}
    for n, message in enumerate(messages):
        if str(n) in confirmed:
            outcome.sent.append(message)
            continue
        said = failed.get(str(n), {})
        if said.get("SenderFault") and "Throttl" not in said.get("Code", ""):
            outcome.refused.append((message, f"SQS said {said.get('Code')}: {said.get('Message', '')}"))
        else:
            again.append(message)
    return again


def _server_fault(error: HipqError) -> bool:
    status = getattr(error.__cause__, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    return int(status) >= 500
