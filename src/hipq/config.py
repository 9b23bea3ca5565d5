"""`hipq.toml`, or `[tool.hipq]` in pyproject.toml: what is configuration and not code.

    app = "shop:app"
    database = "sqlite:///shop.db"      # a relative path begins at this file
    callback_url = "https://shop.example/hipq"
    [worker]
    concurrency = 20
    [prune]
    older_than = "30d"
    [waiter]
    delay = 300
    [serve]
    port = 8080

It is looked for in the current folder and then in those above it, up to the one that has .git, or the home folder.
What the command line or the environment says goes before it.
"""

from __future__ import annotations

import os
import re
import stat
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from hipq.errors import Invalid, shown

FILE: Final = "hipq.toml"
_OTHER: Final = "pyproject.toml"
_SQLITE: Final = "sqlite:///"

_Some = Annotated[int, msgspec.Meta(ge=1)]
_Span = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+(\.[0-9]+)?[smhdw]?$")] | Annotated[float, msgspec.Meta(ge=0)]
_Pause = (
    Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]*(\.[0-9]+)?[smhdw]?$")] | Annotated[float, msgspec.Meta(gt=0)]
)


class Worker(msgspec.Struct, forbid_unknown_fields=True):
    """What `hipq worker` does unless it is told otherwise."""

    queues: list[str] | None = None
    concurrency: Annotated[_Some, msgspec.Meta(le=10_000)] | None = None
    processes: Annotated[_Some, msgspec.Meta(le=1_000)] | None = None
    lease: _Span | None = None
    wait: _Span | None = None
    drain: _Span | None = None
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    log_format: Literal["text", "json", "none"] | None = None


class Prune(msgspec.Struct, forbid_unknown_fields=True):
    """What `hipq prune` does unless it is told otherwise."""

    older_than: _Span | None = None
    keep: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)] | None = None


class Waiter(msgspec.Struct, forbid_unknown_fields=True):
    """What `hipq waiter` does unless it is told otherwise, or MODULE:APP says so."""

    queues: list[str] | None = None
    delay: _Pause | None = None
    table: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{3,255}$")] | None = None
    scheduler: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    region: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,40}$")] | None = None
    endpoint_url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/?#@\s]+/?$")] | None = None


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    app: Annotated[str, msgspec.Meta(pattern=r"^[^:]+:[^:]+$")] | None = None
    database: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    callback_url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/]+")] | None = None
    worker: Worker = msgspec.field(default_factory=Worker)
    prune: Prune = msgspec.field(default_factory=Prune)
    waiter: Waiter = msgspec.field(default_factory=Waiter)
    serve: dict[str, Any] = {}
    """What `hipq serve` does unless it is told otherwise: its options, which say themselves what they may be."""


class Found(msgspec.Struct, frozen=True):
    """What a file says, and which one it is; without a file, nothing."""

    settings: Settings = msgspec.field(default_factory=Settings)
    file: Path | None = None


def database_url(name: str) -> str:
    """The database of an instance whose code names none: of the environment, of the file, else a SQLite file here."""
    return os.environ.get("HIPQ_DATABASE_URL") or read().settings.database or f"{_SQLITE}{name}.db"


def callback_url(given: str | None) -> str:
    """Where an instance is called back: as its code says, else the environment, else the file; "" if nothing does."""
    url = given if given is not None else os.environ.get("HIPQ_CALLBACK_URL") or read().settings.callback_url or ""
    if url and not re.match(r"https?://[^/]", url):
        raise Invalid(f"callback_url must be a URL like https://shop.example/hipq, not {shown(url)}")
    return url


def read() -> Found:
    """The nearest file, checked. Invalid, in one sentence that names the file and the key, if it is not right."""
    found = _nearest()
    if found is None:
        return Found()
    file, content = found
    settings = _checked(file, content)
    if settings.database and settings.database.lstrip().startswith("{"):
        settings.database = _url(file, settings.database)
    if settings.database and settings.database.startswith(_SQLITE):
        path = settings.database.removeprefix(_SQLITE)
        if path != ":memory:":
            settings.database = f"{_SQLITE}{file.parent / path}"
    return Found(settings, file)


def _url(file: Path, database: str) -> str:
    from hipq.stores.open import url_of

    try:
        return url_of(database)
    except Invalid as error:
        raise Invalid(f"{file}: database: {error}") from None


# -- finding it ------------------------------------------------------------------------------------------------------
def _nearest() -> tuple[Path, Any] | None:
    try:
        here = Path.cwd()
    except OSError:  # it was removed under us
        return None
    home = os.path.expanduser("~")
    for folder in (here, *here.parents):
        if folder != here and _is_anybodys(folder):
            return None  # in /tmp a stranger could say which code is imported
        for name in (FILE, _OTHER):
            content = _content(folder / name) if _is_ours(folder / name) else None
            if content is not None:
                return folder / name, content
        if (folder / ".git").exists() or str(folder) == home:
            return None
    return None


def _is_ours(file: Path) -> bool:
    """Not somebody else's: it says which code is imported."""
    try:
        return file.stat().st_uid in (0, os.getuid())
    except OSError:
        return True  # which `_content` has to say something about


def _is_anybodys(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return True


def _content(file: Path) -> Any:
    """What is in a file about hipq; None if it is not there, or a pyproject.toml that says nothing about it."""
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if file.name == _OTHER:
            return None
        raise Invalid(f"cannot read {file}: {error.strerror}") from None
    if file.name == _OTHER and b"hipq" not in text:
        return None
    import tomllib  # a program that has no such file need not load it

    try:
        content = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"{file} is not TOML: {error}") from None
    if file.name == FILE:
        return content
    tools = content.get("tool")
    return tools.get("hipq") if isinstance(tools, dict) else None


# -- checking it -----------------------------------------------------------------------------------------------------
_SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "": Settings,
    "worker": Worker,
    "prune": Prune,
    "waiter": Waiter,
}


_MUST_BE: Final = {
    "app": 'MODULE:APP, like "shop:app"',
    "database": 'a URL, like "sqlite:///shop.db"',
    "callback_url": 'where hipq callbacks is reached, like "https://shop.example/hipq"',
    "worker.queues": 'a list of names, like ["orders", "mails"]',
    "worker.concurrency": "a whole number from 1 to 10000",
    "worker.processes": "a whole number from 1 to 1000",
    "worker.lease": 'seconds, or a duration like "30s"',
    "worker.wait": 'seconds, or a duration like "5m"',
    "worker.drain": 'seconds, or a duration like "25s"',
    "worker.log_level": '"debug", "info", "warning" or "error"',
    "worker.log_format": '"text", "json" or "none"',
    "prune.older_than": 'seconds, or a duration like "30d"',
    "prune.keep": "a whole number from 0",
    "waiter.queues": 'a list of names of SQS queues, like ["mailers", "reports.fifo"]',
    "waiter.delay": 'seconds, or a duration like "5m", and more than none',
    "waiter.table": 'the name of a DynamoDB table, like "scheduled"',
    "waiter.scheduler": 'the hash value of items, like "shoryuken-waiter"',
    "waiter.region": 'the name of one, like "eu-west-1"',
    "waiter.endpoint_url": 'the URL of a server, like "http://127.0.0.1:5000"',
}


def _checked(file: Path, content: Any) -> Settings:
    for section, kind in _SECTIONS.items():
        part = content.get(section) if section and isinstance(content, dict) else content
        if isinstance(part, dict):
            _no_strangers(file, section, part, [one.name for one in msgspec.structs.fields(kind)])
    try:
        return msgspec.convert(content, Settings)
    except msgspec.ValidationError as error:
        _, is_part, where = str(error).rpartition(" - at `$")
        key = where.strip("`.").partition("[")[0] if is_part else ""
        raise Invalid(f"{file}: {key or 'hipq'} must be {_MUST_BE.get(key, 'a table')}") from None


def _no_strangers(file: Path, section: str, part: dict[str, Any], known: list[str]) -> None:
    for key in part:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise Invalid(f"{file}: {f'{section}.' if section else ''}{key!s:.60} is no setting; {hint}")
