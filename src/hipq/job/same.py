"""Whether data comes back from JSON as it went in; and if not, where, and what to write instead."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from hipq.errors import Invalid, shown

_INSTEAD: Final[tuple[tuple[Any, str], ...]] = (
    ((set, frozenset), "sorted(...)"),
    (tuple, "list(...)"),
    ((bytes, bytearray, memoryview), "base64.b64encode(...).decode()"),
    ((Decimal, UUID), "str(...)"),
    ((datetime, date, time), "(...).isoformat()"),
    (timedelta, "(...).total_seconds()"),
    (enum.Enum, "(...).value"),
)


def check_same(given: Any, back: Any, path: str) -> None:
    """Invalid, with the path of the value, if `given` has anything that is not in `back`, which was read from its JSON.

    A string, a number or a list may come back as what a type makes of it: that is how a datetime is written in JSON.
    """
    if isinstance(given, (str, int, float, type(None))) and not isinstance(given, enum.Enum):
        return
    if isinstance(given, dict) and isinstance(back, dict):
        _check_dict(given, back, path)
    elif isinstance(given, dict):
        _check_fields(given, back, path)
    elif _is_object(given) and type(given) is type(back):
        for name in _fields(given):
            check_same(getattr(given, name, None), getattr(back, name, None), f"{path}.{name}")
    elif isinstance(given, list) or (isinstance(given, tuple) and type(given) is type(back)):
        if isinstance(back, (list, tuple)):
            for n, (one, other) in enumerate(zip(given, back, strict=False)):
                check_same(one, other, f"{path}[{n}]")
    elif given != back:
        raise _stranger(given, back, path)


def culprit(given: Any, path: str, depth: int = 100) -> str:
    """The path of what JSON has nothing for, in a value that could not be written."""
    inside: Iterable[tuple[Any, Any]] = ()
    if isinstance(given, dict):
        inside = given.items()
    elif isinstance(given, (list, tuple)):
        inside = enumerate(given)
    for name, value in inside if depth else ():
        try:
            msgspec.json.encode({name: value})
        except Exception:
            return culprit(value, _under(path, name), depth - 1)
    return path


def _check_dict(given: dict[Any, Any], back: dict[Any, Any], path: str) -> None:
    same_names = len(given) == len(back)  # unless a type reads them: "1" is the JSON of 1 in a dict[int, str]
    for (name, value), (other_name, other) in zip(given.items(), back.items(), strict=False):
        if not same_names:
            break
        if name != other_name and not isinstance(name, str):
            raise _bad_key(name, path)
        check_same(value, other, _under(path, name))
    if not same_names:
        for name, value in given.items():
            if name not in back:
                raise _unknown(name, back, path) if isinstance(name, str) else _bad_key(name, path)
            check_same(value, back[name], _under(path, name))


def _check_fields(given: dict[Any, Any], back: Any, path: str) -> None:
    """A mapping for a class: the class has all its names."""
    if not _is_object(back):
        return
    fields = _fields(back)
    if isinstance(back, msgspec.Struct):
        tag = back.__struct_config__.tag_field
        names = dict(zip(back.__struct_encode_fields__, fields, strict=True)) | ({tag: tag} if tag else {})
    else:
        names = {name: name for name in fields}
    for name, value in given.items():
        if name not in names:
            raise _unknown(name, names, path) if isinstance(name, str) else _bad_key(name, path)
        check_same(value, getattr(back, names[name], value), _under(path, name))


def _is_object(value: Any) -> bool:
    kind = type(value)
    return isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(kind) or hasattr(kind, "__attrs_attrs__")


def _fields(value: Any) -> Iterable[str]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return [field.name for field in type(value).__attrs_attrs__]


def _under(path: str, name: Any) -> str:
    return f"{path}.{name}" if isinstance(name, str) and name.isidentifier() else f"{path}[{shown(name)}]"


def _stranger(given: Any, back: Any, path: str) -> Invalid:
    kind = type(given).__name__
    instead = next((text for kinds, text in _INSTEAD if isinstance(given, kinds)), "msgspec.to_builtins(...)")
    return Invalid(
        f"{path} is of type {kind}, and comes back from JSON as {type(back).__name__}: write {instead}"
        + _typed(path, kind if _is_object(given) else "Charge")
    )


def _bad_key(name: Any, path: str) -> Invalid:
    kind = type(name).__name__
    return Invalid(
        f"{path} has the key {shown(name)}, of type {kind}, which comes back from JSON as a string: write str(...)"
        + _typed(path, f"dict[{kind}, str]")
    )


def _typed(path: str, kind: str) -> str:
    """A job's payload can have a type; what it says and gets otherwise is plain JSON."""
    return f", or type the payload: Job[{kind}]" if path.startswith("data") else ""


def _unknown(name: str, known: Mapping[Any, Any], path: str) -> Invalid:
    from difflib import get_close_matches  # programs that make no mistakes need not load it

    near = get_close_matches(name, [one for one in known if isinstance(one, str)], 1)
    hint = f"did you mean {near[0]}?" if near else "add it to the type, or leave it out"
    return Invalid(f"{_under(path, name)} is no field of its type: {hint}")
