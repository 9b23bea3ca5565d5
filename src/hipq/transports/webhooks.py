"""Standard Webhooks 1.0: a message is signed with a secret that its two sides share, `v1` (HMAC-SHA256). Pure, but for
the secrets: these are in the environment, and are read whenever they are used.

    webhook-signature: v1,base64(HMAC(secret, "{webhook-id}.{webhook-timestamp}.{body}"))
"""

from __future__ import annotations

import binascii
import hmac
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from hipq.errors import Invalid

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
TOLERANCE: Final = 300
"""Seconds by which a timestamp may differ from the clock here, either way."""
LEAST: Final = 24
"""Bytes that a secret has at least."""

PREFIX: Final = "whsec_"
_ASYMMETRIC: Final = ("whpk_", "whsk_")
_VARIABLE: Final = re.compile("[A-Za-z_][A-Za-z0-9_]{0,199}")


class BadSignature(Exception):
    """A message that was not signed with a secret known here, or not just now: why, in a sentence."""


def signed(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a message, with a signature of each key."""
    signatures = " ".join(_signatures(keys, message_id, str(timestamp), body))
    return {ID: message_id, TIMESTAMP: str(timestamp), SIGNATURE: signatures}


def _signatures(keys: Sequence[bytes], message_id: str, timestamp: str, body: bytes) -> list[str]:
    text = f"{message_id}.{timestamp}.".encode("latin-1", "replace") + body
    return [f"v1,{b64encode(hmac.digest(key, text, 'sha256')).decode()}" for key in keys]


class WebhookSecrets:
    """The secrets that an environment variable has: one, or several while they are changed, with spaces between."""

    def __init__(self, variable: str, option: str) -> None:
        is_name = isinstance(variable, str) and _VARIABLE.fullmatch(variable)
        if not is_name or variable.startswith((PREFIX, *_ASYMMETRIC)):  # it is not shown: it may be the secret itself
            raise Invalid(f"{option} is the name of the environment variable that has the secret, like BANK_SECRET")
        self.variable = variable

    def check(self) -> None:
        """Refuse, in a sentence that does not show them, secrets that are missing or can be none."""
        self._keys()

    def sign(self, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
        """The headers of a message; with several secrets it has a signature of each."""
        return signed(self._keys(), message_id, timestamp, body)

    def verify(self, headers: Mapping[str, str], body: bytes, now: float) -> str:
        """The id of a message with these headers (names in lower case), if its signature is good."""
        message_id, timestamp, given = (headers.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
        if not (message_id and timestamp and given):
            raise BadSignature(f"a webhook is signed: it has the headers {ID}, {TIMESTAMP} and {SIGNATURE}")
        if "." in message_id:
            raise BadSignature(f"its {ID} has a dot, with which a signature could be moved to another message")
        _check_time(timestamp, now)
        candidates = [one.encode() for one in given.split(" ") if one.startswith("v1,")]
        if not candidates:
            raise BadSignature(f"its {SIGNATURE} has none of the kind v1, the one that is understood (v1a is not)")
        expected = [one.encode() for one in _signatures(self._keys(), message_id, timestamp, body)]
        if not any(hmac.compare_digest(one, other) for one in expected for other in candidates):
            raise BadSignature("its signature is not by the secret of this webhook, or its body was changed")
        return message_id

    def _keys(self) -> list[bytes]:
        found = [self._key(one) for one in os.environ.get(self.variable, "").split()]
        if not found:
            raise Invalid(f"${self.variable} is not set: it must have the secret of a webhook, {PREFIX}…")
        return found

    def _key(self, text: str) -> bytes:
        if text.startswith(_ASYMMETRIC):
            raise Invalid(f"${self.variable} has a key of ed25519: ask for a symmetric secret, {PREFIX}…")
        encoded = text.removeprefix(PREFIX).rstrip("=")
        try:
            key = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except (ValueError, binascii.Error):
            key = b""
        if not text.startswith(PREFIX) or len(key) < LEAST:
            raise Invalid(f"${self.variable} must have {PREFIX} and at least {LEAST} bytes in base64")
        return key

    def __repr__(self) -> str:
        return f"<WebhookSecrets ${self.variable}>"


def _check_time(timestamp: str, now: float) -> None:
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 15:
        raise BadSignature(f"its {TIMESTAMP} is no number of seconds since 1970")
    if abs(now - int(timestamp)) > TOLERANCE:
        when = "too old" if int(timestamp) < now else "in the future"
        raise BadSignature(f"its {TIMESTAMP} is {when}: it may differ from the clock here by {TOLERANCE} seconds")
