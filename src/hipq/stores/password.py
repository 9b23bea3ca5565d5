"""The name of a database for people: without its password, whatever form it was given in. Apart from `open`, which
knows every store: a store may import this."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_SECRET: Final = r"\w*(?:pas+w|pwd|secret)\w*|scram_(?:client|server)_key"
"""The names of secrets to hide: all that libpq has, and mistyped ones."""
_HIDDEN: Final = "…"
_SCHEME: Final = re.compile(r"[A-Za-z][\w+.-]*://")
_IN_QUERY: Final = re.compile(rf"\b({_SECRET})=[^&]*", re.IGNORECASE)
_IN_WORDS: Final = re.compile(
    rf"\b({_SECRET})\s*=\s*(?:'(?:[^'\\]|\\.)*(?:'|$)|.*?(?=\s+\w+\s*=|$))", re.IGNORECASE | re.DOTALL
)
"""In `user=ann password='a b'`: a quoted value, or all up to the next key."""
_IN_URL: Final = re.compile(r"(://[^:/@\s]*)[:/].*@", re.DOTALL)
"""In `DATABASE_URL=postgresql://ann:…@db/shop`, as it is in a file of settings."""
_HOSTS: Final = r"(?:\[[^\]]*\]|[^:\[\]]*)(?::\d*)?"


def without_password(db: str) -> str:
    """A database as people are shown it: its URL, `key=value` words or JSON, with `…` in place of each password."""
    if db.lstrip().startswith("{"):
        return _json(db)
    scheme = found[0] if (found := _SCHEME.match(db)) else ""
    rest = db.removeprefix(scheme)
    if not scheme and "=" in rest:
        return _IN_URL.sub(rf"\1:{_HIDDEN}@", _IN_WORDS.sub(rf"\1={_HIDDEN}", rest))
    who, at, where = rest.rpartition("@")  # the last one: an @ may be in a password
    user = who if scheme == "sqlite://" else re.split("[:/]", who, maxsplit=1)[0]
    if user != who:
        rest = f"{user}:{_HIDDEN}@{where}"
    elif scheme and not at and not re.fullmatch(rf"{_HOSTS}(?:,{_HOSTS})*", re.split("[/?]", rest, maxsplit=1)[0]):
        rest = f"{rest.partition(':')[0]}:{_HIDDEN}"  # what follows the colon is no port
    before, mark, query = rest.partition("?")
    if mark:
        from urllib.parse import unquote  # most programs give no query, and need not load it

        if len(_IN_QUERY.findall(unquote(query))) > len(_IN_QUERY.findall(query)):  # the name of one is percent-encoded
            return f"{scheme}{before}{mark}{_HIDDEN}"
    return scheme + _IN_QUERY.sub(rf"\1={_HIDDEN}", rest)


def _json(text: str) -> str:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return f"{{{_HIDDEN}}}"
    return json.dumps({name: _value(name, value) for name, value in found.items()}, ensure_ascii=False)


def _value(name: str, value: Any) -> Any:
    if re.fullmatch(_SECRET, name, re.IGNORECASE) or isinstance(value, (dict, list)):
        return _HIDDEN
    return without_password(value) if isinstance(value, str) else value
