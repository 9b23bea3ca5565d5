"""The operator's keys, with which tenants' secrets are encrypted before the database has them: AES-256-GCM.

Keys are texts, one a line: in a file (`--secrets-key-file`), or in $HIPQ_SECRETS_KEY. The first encrypts, all of them
decrypt: so a key is replaced by putting a new one first, and dropping the old one when nothing is encrypted with it.
The file is read whenever it is needed, so that a daemon need not be restarted for that.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from secrets import token_bytes
from typing import Any, Final

import msgspec

from hipq.errors import CannotRun, Invalid

VARIABLE: Final = "HIPQ_SECRETS_KEY"
PREFIX: Final = "hipqkey_"
NO_KEY: Final = (
    f"this daemon keeps no secrets, as it has no key to encrypt them with: --secrets-key-file, or ${VARIABLE}, which "
    "`hipq secret new-key` makes"
)
_BYTES: Final = 32
_NONCE: Final = 12
_PR_SET_DUMPABLE: Final = 4
_KEY: Final = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}=?")


class Sealed(msgspec.Struct, frozen=True):
    """What the database has of a secret."""

    key: str
    """The id of the key that it is encrypted with."""
    text: str
    """A nonce, the encrypted bytes and their tag, in base64."""
    made: int


def new_key() -> str:
    return f"{PREFIX}{urlsafe_b64encode(token_bytes(_BYTES)).decode().rstrip('=')}"


class SecretKeys:
    def __init__(self, file: str = "") -> None:
        self._file = file

    def check(self) -> None:
        """Refuse keys that can be none, and keys without what is needed to use them. It is no error to have none."""
        if self._file or os.environ.get(VARIABLE):
            self._keys()
            _cipher()

    def require(self) -> None:
        """Invalid if there is no key."""
        self._keys()

    def seal(self, value: bytes, about: str, now: int) -> Sealed:
        """`about` says whose secret it is: it can be opened as that, and as no other."""
        name, key = next(iter(self._keys().items()))
        nonce = token_bytes(_NONCE)
        encrypted = nonce + _cipher()(key).encrypt(nonce, value, about.encode())
        return Sealed(name, b64encode(encrypted).decode(), now)

    def open(self, sealed: Sealed, about: str) -> bytes:
        """CannotRun if there is no key for it, or if it was tampered with."""
        try:
            key = self._keys().get(sealed.key)
        except Invalid as error:
            raise CannotRun(str(error)) from None
        if key is None:
            raise CannotRun(f"a secret is encrypted with the key {sealed.key}, which this daemon has not")
        text = b64decode(sealed.text)
        try:
            opened: bytes = _cipher()(key).decrypt(text[:_NONCE], text[_NONCE:], about.encode())
        except Exception:  # InvalidTag: it says nothing else
            raise CannotRun("a secret in the database is not as it was written there: set it again") from None
        return opened

    def is_current(self, sealed: Sealed) -> bool:
        """Whether it is encrypted with the first of the keys."""
        return next(iter(self._keys())) == sealed.key

    def _keys(self) -> dict[str, bytes]:
        """By their ids."""
        where = self._file or f"${VARIABLE}"
        found: dict[str, bytes] = {}
        for word in self._words():
            if not _KEY.fullmatch(word):  # it is not shown: it may be one that was mistyped
                raise Invalid(f"{where} has a word that is no key: `hipq secret new-key` makes one, {PREFIX}…")
            text = word.removeprefix(PREFIX).rstrip("=")
            key = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            found[sha256(key).hexdigest()[:8]] = key
        if not found:
            raise Invalid(f"{self._file} has no key: `hipq secret new-key` makes one" if self._file else NO_KEY)
        return found

    def _words(self) -> list[str]:
        if not self._file:
            return os.environ.get(VARIABLE, "").split()
        try:
            with open(self._file, encoding="utf-8") as file:
                lines = [line.partition("#")[0] for line in file]
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise Invalid(f"the key file {self._file} cannot be read: {why}") from None
        return " ".join(lines).split()

    def __repr__(self) -> str:
        return f"<SecretKeys {self._file or VARIABLE}>"


def no_core() -> None:
    """From now on nobody but root can look into this process, and a crash leaves no picture of its memory: secrets are
    there. (To limit the size of such pictures would not do: where a program takes them, that limit is not asked.)"""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _cipher() -> Callable[[bytes], Any]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only who keeps secrets needs it
    except ModuleNotFoundError:
        raise Invalid("secrets need cryptography: pip install 'hipq[secrets]'") from None
    return AESGCM
