"""Up to ten SQS messages in one request: which of them SQS refused, and whether another try may succeed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

BATCH: Final = 10
"""The most messages that SQS delivers, hides, shows or deletes in one request."""

T = TypeVar("T")


class NotSent(NamedTuple):
    """The indexes of the messages that SQS refused."""

    now: list[int]
    """Refused for the moment: another try may succeed."""
    ever: list[int]
    """Refused for good: the receipt is void, because the message is deleted or another reader has it."""


def tens(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + BATCH] for start in range(0, len(items), BATCH)]


def delete(client: Any, queue_url: str, receipts: Sequence[str]) -> NotSent:
    entries = [{"Id": str(place), "ReceiptHandle": one} for place, one in enumerate(receipts)]
    return _refused(client.delete_message_batch(QueueUrl=queue_url, Entries=entries))


def hide(client: Any, queue_url: str, receipts: Sequence[tuple[str, int]]) -> NotSent:
    """Hide each message for its number of seconds from now; 0 = others may receive it at once."""
    entries = [
        {"Id": str(place), "ReceiptHandle": one, "VisibilityTimeout": seconds}
        for place, (one, seconds) in enumerate(receipts)
    ]
    return _refused(client.change_message_visibility_batch(QueueUrl=queue_url, Entries=entries))


def _refused(answer: dict[str, Any]) -> NotSent:
    failed = [(int(one["Id"]), bool(one.get("SenderFault"))) for one in answer.get("Failed", ())]
    return NotSent([place for place, ours in failed if not ours], [place for place, ours in failed if ours])
