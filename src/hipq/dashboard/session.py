"""Sessions: a signed cookie that says who has logged in and until when, and the tokens of forms.

    base64url([name, expiry, nonce]) + "." + base64url(HMAC-SHA256 of that and of the SHA-256 of the visitor's token)

The server keeps nothing of a session, so any process with the same key knows it. The token's hash is signed too, so a
session ends when its token is taken out of the configuration or is another one. What a visitor may do is read there at
each visit, and is not in the cookie.
"""

from __future__ import annotations

import hmac
import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from secrets import token_bytes, token_urlsafe
from typing import Final, NamedTuple

import msgspec

from hipq.errors import Invalid

SECONDS: Final = 12 * 3600
"""How long a session lasts."""
ENDED: Final = 10_000
"""Sessions that were ended by logging out and are remembered, the latest: their cookies may have been copied."""
VARIABLE: Final = "HIPQ_DASHBOARD_SECRET"
SHORTEST: Final = 32
_LONGEST: Final = 2_000
_said = msgspec.json.Decoder(tuple[str, int, str])


class Session(NamedTuple):
    name: str
    until: int
    """When it ends, in seconds since 1970."""
    nonce: str


class Sessions:
    """Any thread may use it."""

    def __init__(self, secret: str = "", clock: Callable[[], float] = time.time) -> None:
        """`secret`: what the key is made of; "" = a key of this process alone."""
        if secret and len(secret) < SHORTEST:
            raise Invalid(
                f"${VARIABLE} must have {SHORTEST} characters or more: "
                'python -c "import secrets; print(secrets.token_urlsafe())" makes a good one'
            )
        self._key = sha256(secret.encode("utf-8", "surrogateescape")).digest() if secret else token_bytes(32)
        self._clock = clock
        self._ended: OrderedDict[str, None] = OrderedDict()

    @classmethod
    def of_environment(cls) -> Sessions:
        """With the key that is in the environment, if there is one: processes that have the same know each other's."""
        return cls(os.environ.get(VARIABLE, ""))

    def begin(self, name: str, digest: bytes) -> str:
        """The value of a new session's cookie."""
        said = msgspec.json.encode((name, int(self._clock()) + SECONDS, nonce()))
        return self._signed(said, digest)

    def read(self, cookie: str, digest: Callable[[str], bytes | None]) -> Session | None:
        """The session that a cookie is of, if it was signed here, goes on, and its visitor still has that token."""
        said = _decoded(cookie)
        if said is None:
            return None
        try:
            found = Session(*_said.decode(said))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        known = digest(found.name)
        # The whole text is compared, not the decoded bytes: base64 has several ways to write the same bytes. It takes
        # as long if nobody has this name.
        if not hmac.compare_digest(self._signed(said, known or b"").encode(), cookie.encode()) or known is None:
            return None
        return found if self._clock() < found.until and found.nonce not in self._ended else None

    def end(self, session: Session) -> None:
        """Nobody can go on with this session, whoever has its cookie."""
        self._ended[session.nonce] = None
        while len(self._ended) > ENDED:
            self._ended.popitem(last=False)

    def form_token(self, name: str, nonce: str) -> str:
        """What the forms of a visitor must send: nobody makes it up who has not this key."""
        return _text(self._mac(b"form", name.encode("utf-8", "surrogatepass"), nonce.encode()))

    def _signed(self, said: bytes, digest: bytes) -> str:
        return f"{_text(said)}.{_text(self._mac(b'session', said, digest))}"

    def _mac(self, *parts: bytes) -> bytes:
        return hmac.digest(self._key, b"".join(len(part).to_bytes(4) + part for part in parts), "sha256")


def nonce() -> str:
    return token_urlsafe(18)


def _text(some: bytes) -> str:
    return urlsafe_b64encode(some).rstrip(b"=").decode()


def _decoded(cookie: str) -> bytes | None:
    text, _, _ = cookie.partition(".")
    if len(cookie) > _LONGEST or not cookie.isascii():
        return None
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
