"""The gate: from a request's headers to who it is. Nobody gets in by accident: without tokens and without an
application that says who somebody is, everybody is nobody."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Final

from hipq.callback.rate_buckets import RateBuckets
from hipq.dashboard.session import Session, Sessions, nonce
from hipq.dashboard.tokens import VARIABLE as TOKENS
from hipq.dashboard.tokens import KnownTokens, Tokens
from hipq.dashboard.visit import NOBODY, Refused, Role, Visit, Visitor
from hipq.errors import Invalid
from hipq.observe.logs import escaped

SESSION: Final = "hipq_session"
FORM: Final = "hipq_form"
"""The cookie of who has no session of ours: its forms are told from those of other sites by it."""
WRONG: Final = 10
"""Wrong tokens that an address may try at once; after that one in ten seconds."""
WRONG_IN_ALL: Final = 200
"""Those that all addresses together may try at once; after that ten a second."""
SLOWED: Final = Visitor("nobody, slowed down", Role.NOBODY)
"""Who comes from an address with too many wrong tokens: its token is not looked at."""
_NONCE: Final = re.compile(r"[A-Za-z0-9_-]{24}")

_log = logging.getLogger("hipq")


class Gate:
    """Any thread may use it."""

    def __init__(
        self,
        tokens: KnownTokens | None = None,
        sessions: Sessions | None = None,
        *,
        is_hosted: bool = False,
        on_wrong: Callable[[str], None] = lambda _: None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_hosted`: the application around the dashboard says who somebody is. `on_wrong` is told from which address
        a wrong token came."""
        self._on_wrong = on_wrong
        self.tokens = tokens
        self.is_hosted = is_hosted
        self._sessions = sessions or Sessions()
        self._wrong = RateBuckets(0.1, steady, burst=WRONG)
        self._wrong_in_all = RateBuckets(10, steady, burst=WRONG_IN_ALL)
        self._lock = Lock()

    def admit(self, visit: Visit, hosted: Visitor | None = None) -> Visit:
        """The visit with who it is, and with what its forms must send. `hosted`: who the application says it is."""
        if self.is_hosted:
            return self._with_form(visit, hosted or NOBODY)
        if self.tokens is None:
            return visit._replace(visitor=NOBODY)
        if (token := _bearer(visit)) is not None:
            visitor = self._holder(token, visit.address)
            return visit._replace(visitor=visitor, by_program=visitor.role > Role.NOBODY)
        for cookie in _cookies(visit, SESSION):
            if session := self._session(cookie):
                known = self.tokens.named(session.name)
                assert known is not None
                form = self._sessions.form_token(session.name, session.nonce)
                return visit._replace(visitor=known[0], csrf=form)
        return self._with_form(visit, NOBODY)

    def log_in(self, visit: Visit, token: str) -> tuple[Visitor, str]:
        """Who has this token, and the cookie of its session. Refused, if nobody does."""
        visitor = self._holder(token, visit.address)
        if visitor == SLOWED:
            raise Refused(429, "too many wrong tokens: wait a minute, and try again")
        known = self.tokens.named(visitor.name) if self.tokens and visitor != NOBODY else None
        if known is None:
            raise Refused(403, "nobody has this token")
        value = self._sessions.begin(visitor.name, known[1])
        return visitor, _set_cookie(visit, SESSION, value)

    def log_out(self, visit: Visit) -> str:
        """End the session; the cookie that takes the place of its own."""
        for cookie in _cookies(visit, SESSION):
            if session := self._session(cookie):
                self._sessions.end(session)
        return _set_cookie(visit, SESSION, "")

    def _session(self, cookie: str) -> Session | None:
        return self._sessions.read(cookie, self._digest)

    def _digest(self, name: str) -> bytes | None:
        known = self.tokens.named(name) if self.tokens else None
        return known[1] if known else None

    def _holder(self, token: str, address: str) -> Visitor:
        """Who has a token. Each wrong one is charged to its address, and to all."""
        with self._lock:  # a right token is looked at as long as there is room for a wrong one
            if not (self._wrong.has(address) and self._wrong_in_all.has("")):
                return SLOWED
            found = self.tokens.visitor(token) if self.tokens else None
            if found is None:
                self._wrong.charge(address, 1)
                self._wrong_in_all.charge("", 1)
                _log.warning("a wrong token for the dashboard, from %s", escaped(address[:100]) or "somewhere")
                self._on_wrong(address)
        return found or NOBODY

    def _with_form(self, visit: Visit, visitor: Visitor) -> Visit:
        """Forms of who has no session of ours: the token that they send belongs to a cookie and to a name."""
        known = next((one for one in _cookies(visit, FORM) if _NONCE.fullmatch(one)), "")
        own = known or nonce()
        cookies = () if known else (_set_cookie(visit, FORM, own),)
        return visit._replace(visitor=visitor, csrf=self._sessions.form_token(visitor.name, own), cookies=cookies)


def gate_of(tokens: Mapping[str, tuple[str, str]] | None = None, *, is_hosted: bool = False) -> Gate:
    """The gate that code and environment describe; without a word of either it is closed."""
    if tokens is not None and is_hosted:
        raise Invalid("give the dashboard tokens= or authenticate=, not both")
    said = "" if tokens is not None or is_hosted else os.environ.get(TOKENS, "")
    known = Tokens(tokens) if tokens else Tokens.read(said) if said else None
    return Gate(known, Sessions.of_environment(), is_hosted=is_hosted)


def _bearer(visit: Visit) -> str | None:
    """The token of a program. Another Authorization is none of ours: a server in front may want it."""
    kind, _, token = visit.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _cookies(visit: Visit, name: str) -> list[str]:
    """The values of the first cookies with this name: another site of the same domain may have set one, too."""
    pairs = (part.strip().partition("=") for part in visit.headers.get("cookie", "").split(";"))
    return [value for found, _, value in pairs if found == name][:5]


def _set_cookie(visit: Visit, name: str, value: str) -> str:
    """Lax and not Strict: so a link to a job works that stands in a mail or a chat. What comes from another site is GET
    then, which changes nothing. It lasts as long as the browser runs; how long a session does, the session says."""
    is_https = visit.is_https or visit.headers.get("origin", "").startswith("https://")
    ends = "" if value else "; Max-Age=0"
    return f"{name}={value}; Path={visit.base or '/'}; HttpOnly; SameSite=Lax{'; Secure' if is_https else ''}{ends}"
