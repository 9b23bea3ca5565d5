"""The tokens that people log in with: who has which, and what they may do."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Protocol

from hipq.dashboard.visit import Role, Visitor, role_of
from hipq.errors import Invalid, shown

SHORTEST: Final = 16
"""Characters that a token must have at least: fewer can be guessed."""
LONGEST: Final = 500
VARIABLE: Final = "HIPQ_DASHBOARD_TOKENS"
_EXAMPLE: Final = "ann=admin:SECRET, bob=view:SECRET"


class KnownTokens(Protocol):
    """Who may log in."""

    def visitor(self, token: str) -> Visitor | None:
        """Whose token this is."""

    def named(self, name: str) -> tuple[Visitor, bytes] | None:
        """A visitor, and the SHA-256 of its token."""


class Tokens:
    """Only the SHA-256 of each token is kept."""

    def __init__(self, given: Mapping[str, tuple[str | Role, str]]) -> None:
        """Name to role and token."""
        self._known: dict[str, tuple[Visitor, bytes]] = {}
        for name, (role, token) in given.items():
            _check(name, token)
            self._known[name] = Visitor(name, role_of(role)), _digest(token)
        if len({digest for _, digest in self._known.values()}) < len(self._known):
            raise Invalid("two visitors of the dashboard have the same token: nobody could say who it was")

    @classmethod
    def read(cls, text: str) -> Tokens:
        """The tokens of $HIPQ_DASHBOARD_TOKENS."""
        found: dict[str, tuple[str | Role, str]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, rest = part.partition("=")
            role, colon, token = rest.partition(":")
            if not colon:  # what is there may be a token: it is not quoted
                raise Invalid(f"${VARIABLE} is a list of NAME=ROLE:TOKEN, like {_EXAMPLE!r}")
            if name.strip() in found:
                raise Invalid(f"${VARIABLE} has {shown(name.strip())} twice")
            found[name.strip()] = (role.strip(), token)
        if not found:
            raise Invalid(f"${VARIABLE} is empty: it is a list of NAME=ROLE:TOKEN, like {_EXAMPLE!r}")
        return cls(found)

    def visitor(self, token: str) -> Visitor | None:
        """Whose token this is. It takes as long whoever has it, and if nobody does."""
        digest = _digest(token[: LONGEST + 1])
        found = None
        for visitor, known in self._known.values():
            if hmac.compare_digest(known, digest):
                found = visitor
        return found

    def named(self, name: str) -> tuple[Visitor, bytes] | None:
        """A visitor, and the SHA-256 of its token."""
        return self._known.get(name)


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _check(name: str, token: str) -> None:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 100:
        raise Invalid(f"a visitor of the dashboard has a name of 1 to 100 printable characters, not {shown(name)}")
    if not isinstance(token, str) or not SHORTEST <= len(token) <= LONGEST:
        raise Invalid(
            f"the token of {name} must have {SHORTEST} to {LONGEST} characters: "
            'python -c "import secrets; print(secrets.token_urlsafe())" makes a good one'
        )
    if not all("!" <= character <= "~" for character in token):
        raise Invalid(f"the token of {name} must have letters, digits and signs of ASCII, and no spaces")
