"""Signed tokens at the end of callback URLs: which job a URL is for, and until when, signed with a key in the database.

    base64url(key id, job, attempt, expiry, tenant) + "." + base64url(HMAC-SHA256 of that)

Two keys are valid at once, so that a rotation ends no URL in use. A new key signs nothing for its first minute: by then
every process has read the keys again and accepts it, however many invalid tokens keep it from reading more often.
"""

from __future__ import annotations

import hmac
import re
import struct
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import timedelta
from secrets import token_bytes, token_hex
from typing import Any, Final, NamedTuple

import msgspec

from hipq.errors import HipqError, Invalid, NotFound
from hipq.job.model import Row
from hipq.job.when import SECOND, later, seconds
from hipq.stores.protocols import Store

KIND: Final = "signing"
LIVE: Final = 2
"""The number of keys that are valid at once."""
FRESH: Final = 30.0
"""Seconds after which keys are read again."""
AGAIN: Final = 1.0
"""Seconds between two reads for an unknown key, so that invalid tokens do not keep the database busy."""
SIGNS_AFTER: Final = 60 * SECOND
"""Microseconds after which a new key signs: well above FRESH."""

_HEAD: Final = struct.Struct(">IQIQ")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{32,900}\.[A-Za-z0-9_-]{43}")


class Forbidden(HipqError):
    """This URL is not one that was signed here."""


class Expired(HipqError):
    """This URL has expired."""


class SignedClaims(NamedTuple):
    """The contents of a token."""

    tenant: str
    job: int
    attempt: int
    """The attempt; 0 = the token was signed before the first one."""
    expires: int
    """When the token expires; 0 = with its job."""

    def is_over(self, now: int) -> bool:
        return bool(self.expires) and now >= self.expires


class KeyInfo(NamedTuple):
    """A key as people see it."""

    id: str
    made: int


class SigningKey(msgspec.Struct, frozen=True):
    id: str
    secret: bytes
    made: int

    def __repr__(self) -> str:
        return f"<Key {self.id}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("id", self.id)]


Keys = tuple[SigningKey, ...]
_keys = msgspec.json.Decoder(Keys)


class Signer:
    """Signs for the jobs of one instance. Any thread may use it. It has no lock, so that a fork cannot leave one
    held."""

    def __init__(self, store: Store, app: str, steady: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._app = app
        self._steady = steady
        self._known: Keys = ()
        """The keys, newest last."""
        self._looked = -1e9

    # -- signing and checking ---------------------------------------------------------------------------------------
    def sign(self, row: Row, expires: int) -> str:
        """The token for answers to this job and attempt. It expires at `expires`, rounded up to a second; 0 = with
        the job."""
        key = signing_key(self._fresh_keys(), self._store.now())
        until = -(-expires // SECOND)
        return _signed(key, _HEAD.pack(int(key.id, 16), row.id, row.attempt, until) + row.tenant.encode())

    def url(self, base: str, row: Row, valid: float | timedelta | None) -> str:
        """What `job.callback_url()` returns."""
        if not base:
            raise Invalid(
                "nothing says where this program is called back: Hipq(..., callback_url=), $HIPQ_CALLBACK_URL, "
                "or callback_url in hipq.toml"
            )
        until = 0 if valid is None else later(self._store.now(), seconds(valid, "valid", least=1))
        return f"{base.rstrip('/')}/{self.sign(row, until)}"

    def read(self, token: str) -> SignedClaims:
        """The claims in a token, expired or not; Forbidden whatever is wrong with it."""
        said = _said(token)
        if said is None:
            raise Forbidden
        key = self._key(_id_in(said))
        # The whole text is compared, not the decoded bytes: base64 has several ways to write the same bytes.
        if key is None or not hmac.compare_digest(_signed(key, said).encode(), token.encode()):
            raise Forbidden
        _, job, attempt, until = _HEAD.unpack_from(said)
        return SignedClaims(said[_HEAD.size :].decode(), job, attempt, until * SECOND)

    def must_look(self, token: str) -> bool:
        """Whether `read` will ask the database, which takes its time."""
        said = _said(token)
        if said is None:
            return False
        age = self._steady() - self._looked
        return age >= FRESH or (age >= AGAIN and _of(self._known, _id_in(said)) is None)

    # -- keys -------------------------------------------------------------------------------------------------------
    def keys(self) -> list[KeyInfo]:
        """The valid keys, newest last."""
        return [KeyInfo(key.id, key.made) for key in self._look()]

    def rotate(self) -> KeyInfo:
        """Add a key, which signs from a minute on. The oldest of three is dropped, and with it the URLs that it
        signed."""
        new = self._new()
        self._change(lambda keys: (*keys, new)[-LIVE:])
        return KeyInfo(new.id, new.made)

    def drop(self, key_id: str) -> None:
        """Accept nothing more that this key signed: here at once, in other processes within half a minute."""
        if key_id not in [key.id for key in self._look()]:
            raise NotFound(f"there is no signing key {key_id!r:.40}")
        self._change(lambda keys: tuple(key for key in keys if key.id != key_id))

    def __repr__(self) -> str:
        return f"<Signer {self._app}>"

    # -- looking ----------------------------------------------------------------------------------------------------
    def _key(self, key_id: str) -> SigningKey | None:
        found = _of(self._fresh_keys(), key_id)
        if found is None and self._steady() - self._looked >= AGAIN:
            found = _of(self._look(), key_id)
        return found

    def _fresh_keys(self) -> Keys:
        return self._known if self._known and self._steady() - self._looked < FRESH else self._look()

    def _look(self) -> Keys:
        looked = self._steady()
        found = _loaded(self._store.notes(KIND).get(self._app, ""))
        if not found:
            first = self._new()
            found = self._change(lambda keys: keys or (first,))  # another process may have been faster
        self._known, self._looked = found, looked
        return found

    def _change(self, change: Callable[[Keys], Keys]) -> Keys:
        def write(text: str) -> str:
            return msgspec.json.encode(change(_loaded(text))).decode()

        looked = self._steady()
        self._known = _loaded(self._store.change_note(KIND, self._app, write))
        self._looked = looked
        return self._known

    def _new(self) -> SigningKey:
        return SigningKey(token_hex(4), token_bytes(32), self._store.now())


def signing_key(keys: Keys, now: int) -> SigningKey:
    """The newest key that every process knows by now; if none is old enough, the oldest."""
    return next((key for key in reversed(keys) if key.made <= now - SIGNS_AFTER), keys[0])


def _of(keys: Keys, key_id: str) -> SigningKey | None:
    return next((key for key in keys if key.id == key_id), None)


def _loaded(text: str) -> Keys:
    return _keys.decode(text) if text else ()


def _signed(key: SigningKey, said: bytes) -> str:
    return f"{_text(said)}.{_text(hmac.digest(key.secret, said, 'sha256'))}"


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _said(token: str) -> bytes | None:
    """The signed part of a token; None if the text cannot be a token."""
    if not _TOKEN.fullmatch(token):
        return None
    text = token.partition(".")[0]
    if len(text) % 4 == 1:
        return None
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _id_in(said: bytes) -> str:
    return f"{_HEAD.unpack_from(said)[0]:08x}"
