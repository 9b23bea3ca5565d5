"""A handler in a folder: its sources, and `hipq-handler.toml`, which says how it runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from hipq.errors import Invalid, nearest, shown

FILE: Final = "hipq-handler.toml"
_PARTS: Final = {"entry": "body", "before": "before", "before_each": "beforeEach", "after_each": "afterEach"}
"""Settings that name files, and what their texts are called over HTTP."""
_POLICY: Final = (
    "run_timeout", "memory", "cpu", "concurrency", "network", "environment", "secrets", "variables", "retry",
)  # fmt: skip
_KINDS: Final = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "a table", "null": "nothing",
}  # fmt: skip
_TYPE: Final = re.compile(r"(?!\.+\Z)[A-Za-z0-9_.-]{1,200}", re.ASCII)
_WRONG: Final = re.compile(r"Expected `(\w+)(?: \| \w+)*`, got `(\w+)`(?: - at `\$\.?(.*)`)?")


class _Retry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    after: float = 0.0
    most: float = 0.0
    attempts: int = 0
    give_up_after: float = 0.0


class _Manifest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    type: str = ""
    language: str = ""
    entry: str = ""
    """The file with the body."""
    url: str = ""
    """Of an http handler, instead of a file."""
    before: str = ""
    before_each: str = ""
    after_each: str = ""
    engine_id: str = ""
    waits: bool = False
    run_timeout: float = 0.0
    memory: int = 0
    cpu: float = 0.0
    concurrency: int = 0
    network: list[str] = []
    environment: str = ""
    secrets: list[str] = []
    variables: dict[str, str] = {}
    retry: _Retry = msgspec.field(default_factory=_Retry)


def read_folder(folder: str | Path) -> tuple[str, dict[str, Any]]:
    """The job type, and the handler as it is put over HTTP. Invalid says what is wrong, and in which file."""
    path = Path(folder) / FILE
    text = _text(path, f"{folder} is no folder of a handler: {path} says how it runs, and")
    try:
        found = msgspec.convert(tomllib.loads(text), _Manifest)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{path} is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise Invalid(f"{path}: {_reworded(str(error))}") from None
    for name in ("type", "language"):
        if not getattr(found, name):
            example = 'type = "charge"' if name == "type" else 'language = "python"'
            raise Invalid(f"{path} does not say the {name}: write {example}")
    if not _TYPE.fullmatch(found.type):
        raise Invalid(f"{path}: a job type must be 1 to 200 letters, digits, '_', '.' or '-', not {shown(found.type)}")
    return found.type, {
        "lang": found.language,
        "eid": found.engine_id,
        "waits": found.waits,
        **_sources(found, path),
        "policy": {name: value for name, value in msgspec.to_builtins(found).items() if name in _POLICY and value},
    }


def _sources(found: _Manifest, path: Path) -> dict[str, str]:
    if found.language == "http":
        if found.entry or not found.url:
            raise Invalid(f'{path}: an http handler has no entry, but a url: write url = "https://..."')
        return {"body": found.url}
    if found.url:
        raise Invalid(f'{path}: a url is for http handlers: write language = "http", or entry instead of url')
    if not found.entry:
        raise Invalid(f'{path} does not say which file has the code: write entry = "handler.py"')
    sources: dict[str, str] = {}
    for setting, part in _PARTS.items():
        if name := getattr(found, setting):
            sources[part] = _text(path.parent / name, f"{path}: {setting} is {name}, which")
    return sources


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Invalid(f"{what} is not UTF-8 text") from None
    except OSError as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise Invalid(f"{what} {why}") from None


def _reworded(error: str) -> str:
    if unknown := re.match(r"Object contains unknown field `(.*?)`(?: - at `\$\.(\w+)`)?", error):
        kind, where = (_Retry, " in [retry]") if unknown[2] == "retry" else (_Manifest, "")
        return f"there is no setting {unknown[1]}{where}{nearest(unknown[1], kind.__struct_fields__)}"
    if wrong := _WRONG.match(error):
        name = (wrong[3] or "it").replace("[...]", "")
        wanted, got = (_KINDS.get(word, word) for word in wrong.groups()[:2])
        return f"{name} must be {wanted}, not {got}"
    return error
