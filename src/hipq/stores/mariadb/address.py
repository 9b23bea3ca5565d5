"""What a URL of MariaDB or MySQL says, as PyMySQL takes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from hipq.errors import Invalid

_URL: Final = re.compile(r"(?:mysql|mariadb)://(?P<authority>[^/?]*)(?P<path>[^?]*)\??(?P<query>.*)", re.DOTALL)
_HOST: Final = re.compile(r"(?P<host>\[[^\]]*\]|[^:@\[\],]*)(?::(?P<port>[0-9]{1,5}))?")
KEYS: Final = (
    "unix_socket", "connect_timeout", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity",
)  # fmt: skip
"""What may be in a URL's query."""
FORM: Final = "write mariadb://user:password@host:3306/database"


def options_of(url: str) -> dict[str, Any]:
    """Keyword arguments of `pymysql.connect`; Invalid, if the URL says none. No message shows what was given."""
    match = _URL.fullmatch(url)
    if not match:
        raise Invalid(f"this is not a MariaDB URL: {FORM}")
    who, _, where = match["authority"].rpartition("@")
    host = _HOST.fullmatch(where)
    if "@" in who + match["path"] or not host:
        raise Invalid(
            f"in a MariaDB URL a user or a password with @ / ? or % in it is percent-encoded, and a port is a number: "
            f"{FORM}"
        )
    database = unquote(match["path"].removeprefix("/"))
    if not database or "/" in database:
        raise Invalid(f"a MariaDB URL must name one database: {FORM}")
    user, _, password = who.partition(":")
    found: dict[str, Any] = {
        "host": host["host"].strip("[]") or "localhost", "port": int(host["port"] or 3306), "database": database,
        "user": unquote(user) or None, "password": unquote(password),
    }  # fmt: skip
    return found | _options_in(match["query"])


def _options_in(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in KEYS:
            known = name if re.fullmatch(r"\w{1,40}", name) else "a key that is no word"
            raise Invalid(f"the URL has {known}, which is unknown; known are {', '.join(KEYS)}")
        found[name] = value
    if "connect_timeout" in found:
        if not re.fullmatch("[1-9][0-9]{0,3}", found["connect_timeout"]):
            raise Invalid("connect_timeout in a MariaDB URL must be whole seconds")
        found["connect_timeout"] = int(found["connect_timeout"])
    for name in ("ssl_verify_cert", "ssl_verify_identity"):
        if name in found:
            found[name] = found[name].lower() in ("1", "true", "yes")
    return found


def url_from(given: Mapping[str, str]) -> str:
    """A URL that says the same as these words."""
    rest = {name: text for name, text in given.items() if text}
    user, password, database = (quote(rest.pop(name, ""), safe="") for name in ("user", "password", "database"))
    host, port = rest.pop("host", "").strip("[]"), rest.pop("port", "")
    who = f"{user}{':' if password else ''}{password}{'@' if user or password else ''}"
    where = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    query = urlencode({name: text for name, text in rest.items() if name in KEYS}, quote_via=quote)
    return f"mariadb://{who}{where}/{database}{'?' if query else ''}{query}"
