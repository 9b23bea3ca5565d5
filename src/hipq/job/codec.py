"""Codecs: how a value of some type becomes JSON and comes back from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from hipq.errors import Invalid


class Codec(Protocol):
    """Turns values of one type into JSON and back. Both ways raise msgspec.ValidationError for what does not fit the
    type."""

    type: Any
    is_lenient: bool
    """Whether it writes values that come back changed: a set as a list, a Decimal as a string, NaN as null."""

    def encode(self, data: Any) -> bytes: ...

    def decode(self, text: str | bytes) -> Any: ...


def _as_int(value: Any) -> int:
    if isinstance(value, int):  # a JobId
        return int(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


class Msgspec:
    """For types that msgspec reads: dataclasses, TypedDicts, msgspec.Structs, and whatever JSON has."""

    is_lenient = True

    def __init__(self, type: Any = Any) -> None:
        self.type = type
        self.encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=_as_int).encode
        self.decode: Callable[[str | bytes], Any] = msgspec.json.Decoder(type).decode


class Pydantic:
    """For types with a Pydantic model in them: Pydantic validates the value, by the model's own rules."""

    is_lenient = False

    def __init__(self, type: Any) -> None:
        from pydantic import TypeAdapter  # the program that has such a model has loaded it

        self.type = type
        self._adapter: TypeAdapter[Any] = TypeAdapter(type)

    def encode(self, data: Any) -> bytes:
        valid = _validated(self._adapter.validate_python, data)
        text = self._dump(valid)
        if self._dump(self.decode(text)) != text:
            raise msgspec.ValidationError("it is another value when it is read back from its JSON")
        return text

    def _dump(self, valid: Any) -> bytes:
        return self._adapter.dump_json(valid, by_alias=True, round_trip=True)

    def decode(self, text: str | bytes) -> Any:
        return _validated(self._adapter.validate_json, text)


def _validated(validate: Callable[[Any], Any], value: Any) -> Any:
    try:
        return validate(value)
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        said = [
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else one["msg"] for one in error.errors()
        ]
        raise msgspec.ValidationError("; ".join(said)) from error


ANY: Final[Codec] = Msgspec()
"""Plain JSON, without a type."""


def codec(kind: Any, name: str = "") -> Codec:
    """The codec of a type, which errors call by this name; Invalid, if JSON cannot become one."""
    if kind is Any:
        return ANY
    try:
        strange = _strange(kind)
        if strange is None:
            return Msgspec(kind)
        if hasattr(strange, "__pydantic_validator__"):
            return Pydantic(kind)
    except Exception as error:  # a class whose own annotations are wrong
        raise Invalid(f"{name or shown_type(kind)} cannot be read from JSON: {error}") from None
    raise Invalid(
        f"{name or shown_type(kind)} cannot be read from JSON, for hipq cannot make a {shown_type(strange)}: "
        "write a dataclass, a TypedDict, a msgspec.Struct or a Pydantic model of types that JSON can carry"
    )


def shown_type(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)


def _strange(kind: Any) -> Any:
    """A class in this type that msgspec cannot read from JSON, a Pydantic model first; None = there is none."""
    from msgspec import inspect as looking  # only who types payloads needs it

    seen: set[int] = set()
    found: list[Any] = []

    def look(part: Any) -> None:
        if isinstance(part, looking.CustomType) and part.cls is not object:
            found.append(part.cls)
        elif isinstance(part, looking.Type | looking.Field | tuple) and id(part) not in seen:
            seen.add(id(part))
            for one in part if isinstance(part, tuple) else [getattr(part, name) for name in part.__struct_fields__]:
                look(one)

    look(looking.type_info(kind))
    return next((cls for cls in found if hasattr(cls, "__pydantic_validator__")), found[0] if found else None)
