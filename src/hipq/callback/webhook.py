"""A URL that stays the same, to which a service posts its answers, signed as Standard Webhooks says.

    app.listen("webhook://bank", to=charge, key="data.reference", secret="BANK_SECRET")

`hipq.callbacks` takes them, at the URL of the callbacks and the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hipq.answers.reading import Reader
from hipq.errors import Invalid
from hipq.job.answer import NewAnswer
from hipq.transports.base import Message
from hipq.transports.webhooks import ID, TIMESTAMP, WebhookSecrets

SCHEME: Final = "webhook://"
_NAME: Final = re.compile("[a-z0-9][a-z0-9_-]{0,29}")


def webhook_at(url: str, secret: str) -> tuple[str, WebhookSecrets]:
    """The name in `webhook://bank`, and the secrets in the variable that `secret` names."""
    name = url.removeprefix(SCHEME)
    if not _NAME.fullmatch(name):
        raise Invalid("a webhook is named like webhook://bank: 1 to 30 lower case letters, digits, - and _")
    if not secret:
        raise Invalid(f"{url} needs secret=, the environment variable that has its secret: else anybody could answer")
    return name, WebhookSecrets(secret, "secret")


class Webhook:
    """The webhooks of one name: answers to the jobs of one type."""

    def __init__(self, url: str, secret: str, to: str, reader: Reader) -> None:
        self.name, self.secrets = webhook_at(url, secret)
        self.to = to
        """The queue and the job type."""
        self.queue = to.partition(".")[0]
        self._reader = reader

    @property
    def listener(self) -> str:
        return f"{self.to} {SCHEME}{self.name}"

    def message(self, headers: Mapping[str, str], body: bytes, now: float) -> Message:
        """A post as a message, if its signature is good. Of its headers it has those that are signed: any other could
        be put there by whoever has seen a webhook."""
        message_id = self.secrets.verify(headers, body, now)
        return Message(body, message_id, headers={ID: message_id, TIMESTAMP: headers[TIMESTAMP]}, subject=self.name)

    def answer(self, message: Message, now: int) -> NewAnswer:
        """The answer that it brings, perhaps an unreadable one."""
        (found,) = self._reader.read([message], now)
        return found
