"""A message as a handler gets it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

ASKED_FOR: Final = ("ApproximateReceiveCount", "MessageDeduplicationId", "MessageGroupId", "SentTimestamp")
"""The system attributes that SQS is asked for with each message."""

Attributes = Mapping[str, Mapping[str, Any]]
"""Message attributes as SQS has them: name -> {"DataType": …, "StringValue": …} or {"DataType": …, "BinaryValue":
…}."""


@dataclass(frozen=True, slots=True)
class Message:
    queue: str
    id: str
    """SQS's id of the message, the same at every delivery."""
    body: str
    attributes: Attributes = field(default_factory=dict)
    group: str = ""
    dedup: str = ""
    receipt: str = field(default="", repr=False)
    received: int = 1
    """How often SQS has delivered the message, this time included."""
    sent_at: float = 0.0
    """When the message was sent, in seconds since 1970 by SQS's clock."""

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


def incoming(said: Mapping[str, Any], queue: str) -> Message:
    """The message in SQS's answer."""
    about = said.get("Attributes", {})
    attributes = {
        name: {key: one[key] for key in ("DataType", "StringValue", "BinaryValue") if key in one}
        for name, one in said.get("MessageAttributes", {}).items()
    }
    return Message(
        queue=queue,
        id=said["MessageId"],
        body=said.get("Body", ""),
        attributes=attributes,
        group=about.get("MessageGroupId", ""),
        dedup=about.get("MessageDeduplicationId", ""),
        receipt=said["ReceiptHandle"],
        received=int(about.get("ApproximateReceiveCount", 1)),
        sent_at=int(about.get("SentTimestamp", 0)) / 1000,
    )
