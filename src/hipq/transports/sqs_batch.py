"""Up to ten messages of SQS in one request: which of them it did not take, and whether it may take them later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

BATCH: Final = 10
"""Messages SQS gives out, hides, shows or deletes at once."""

T = TypeVar("T")


class NotSent(NamedTuple):
    """Places in what was given."""

    now: list[int]
    """SQS could not do it: another try may."""
    ever: list[int]
    """The receipt is good for nothing any more: the message is deleted, or somebody else's."""


def tens(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + BATCH] for start in range(0, len(items), BATCH)]


def delete(client: Any, queue_url: str, receipts: Sequence[str]) -> NotSent:
    entries = [{"Id": str(place), "ReceiptHandle": one} for place, one in enumerate(receipts)]
    return _refused(client.delete_message_batch(QueueUrl=queue_url, Entries=entries))


def hide(client: Any, queue_url: str, receipts: Sequence[tuple[str, int]]) -> NotSent:
    """From others, each for so many seconds from now on; 0 = they may have it at once."""
    entries = [
        {"Id": str(place), "ReceiptHandle": one, "VisibilityTimeout": seconds}
        for place, (one, seconds) in enumerate(receipts)
    ]
    return _refused(client.change_message_visibility_batch(QueueUrl=queue_url, Entries=entries))


def _refused(answer: dict[str, Any]) -> NotSent:
    failed = [(int(one["Id"]), bool(one.get("SenderFault"))) for one in answer.get("Failed", ())]
    return NotSent([place for place, ours in failed if not ours], [place for place, ours in failed if ours])
