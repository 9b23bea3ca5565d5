"""What pages load beside themselves. Their URLs have a hash of the content, so that browsers keep them for ever."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final, NamedTuple

from hipq.dashboard.headers import secured
from hipq.dashboard.visit import Reply

PREFIX: Final = "/static/"
_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}


class StaticFile(NamedTuple):
    body: bytes
    type: str
    version: str


@cache
def _files() -> Mapping[str, StaticFile]:
    found = {}
    for file in (files("hipq.dashboard") / "static").iterdir():
        body = file.read_bytes()
        kind = f"{_TYPES[file.name.rpartition('.')[2]]}; charset=utf-8"
        found[file.name] = StaticFile(body, kind, sha256(body).hexdigest()[:12])
    return found


def static_path(name: str) -> str:
    """The path and query of a file, for a link behind the dashboard's base."""
    return f"{PREFIX}{name}?v={_files()[name].version}"


def static_reply(path: str, version: str) -> Reply | None:
    """The file at this path, if there is one. By a URL of another version, nobody keeps it."""
    found = _files().get(path.removeprefix(PREFIX)) if path.startswith(PREFIX) else None
    if found is None:
        return None
    kept = "public, max-age=31536000, immutable" if version == found.version else "no-cache"
    return secured(Reply(200, found.body, found.type, (("cache-control", kept),)))
