"""Texts with placeholders that a job fills: `https://shop/orders/{key}?try={attempt}`, `{data.customer.emails.0}`.

A placeholder is one of these names, or a path into the job's data: nothing is called, and no attribute is read. A job's
data may come from anywhere, so they can never change where a request goes, nor add a header to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from hipq.errors import Invalid, shown
from hipq.job import payload
from hipq.job.json_path import reach, steps

NAMES: Final = ("key", "id", "attempt", "callback_url", "data")

_TOKEN: Final = re.compile(r"[^{}]+|\{\{|\}\}|\{([^{}]*)\}|[{}]")
_URL: Final = re.compile(r"(https?)://([^/?#]*)([^?]*)(\?.*)?", re.DOTALL)
_HALF_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNSENDABLE: Final = re.compile(r"[\r\n\x00]")


# -- texts ------------------------------------------------------------------------------------------------------------
class Placeholder(NamedTuple):
    name: str
    path: tuple[str, ...] = ()

    def value(self, values: Mapping[str, Any]) -> Any:
        if self.name not in values:
            raise Invalid(f"there is no {self.name} here to fill {{{self.name}}} with")
        return reach(values[self.name], self.path, "the job's data")


class Template:
    """A text with placeholders, parsed once. `{{` and `}}` are braces."""

    __slots__ = ("_parts", "names", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise Invalid(f"a template must be text, not {type(text).__name__}")
        self.text = text
        self._parts = tuple(_parts(text))
        self.names = frozenset(part.name for part in self._parts if isinstance(part, Placeholder))
        """The names that must be given to fill the template."""

    @property
    def placeholders(self) -> str:
        """The placeholders, for messages: the rest of the template may be secret."""
        found = [".".join((part.name, *part.path)) for part in self._parts if isinstance(part, Placeholder)]
        return ", ".join(f"{{{one}}}" for one in found)

    def fill(self, values: Mapping[str, Any]) -> str:
        return "".join(part if isinstance(part, str) else _text(part.value(values)) for part in self._parts)

    def value(self, values: Mapping[str, Any]) -> Any:
        """As `fill`, but a template that is a single placeholder keeps the value's own type."""
        if len(self._parts) == 1 and isinstance(self._parts[0], Placeholder):
            return self._parts[0].value(values)
        return self.fill(values)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"  # the text may contain a secret


def _parts(text: str) -> list[str | Placeholder]:
    found: list[str | Placeholder] = []
    literal = ""
    for token in _TOKEN.finditer(text):
        if token[0] in "{}":
            raise Invalid(f"a template has a single {token[0]}: write {token[0] * 2} for a brace that is meant")
        if token[1] is None:
            literal += {"{{": "{", "}}": "}"}.get(token[0], token[0])
            continue
        found += [literal, _placeholder(token[1])] if literal else [_placeholder(token[1])]
        literal = ""
    return [*found, literal] if literal else found


def _placeholder(text: str) -> Placeholder:
    name, has_path, path = text.partition(".")
    if name not in NAMES or (has_path and name != "data"):
        known = ", ".join(f"{{{one}}}" for one in NAMES)
        shape = shown(f"{{{text}}}")
        raise Invalid(f"{shape} is nothing a template knows; there are {known} and {{data.field.field}}")
    return Placeholder(name, steps(path) if has_path else ())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else payload.encode(value, "what fills a template")


# -- URLs -------------------------------------------------------------------------------------------------------------
class UrlTemplate(Template):
    """The URL of an HTTP service. Placeholders may be in its path and its query only, and each stays within its
    segment or its field, whatever it is filled with."""

    __slots__ = ("_query", "_segments", "_server", "_shown")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        found = _URL.fullmatch(text)
        if found is None or "#" in text:
            raise Invalid("the URL of a request looks like https://server/path?field=value, with no # in it")
        scheme, server, path, query = found[1], found[2], found[3], found[4] or ""
        if "{" in server or "}" in server:
            raise Invalid("a job may not choose the server: no {places} before the path of a URL")
        if not _is_server(server):
            raise Invalid("the URL of a request must name a server, as in https://server:8443/path")
        if any(isinstance(part, str) and _HALF_ESCAPE.search(part) for part in self._parts):
            raise Invalid("the URL of a request contains a % that is not %XX; write %25 for it")
        self._server = f"{scheme}://{server}"
        self._shown = f"{scheme}://{server.rpartition('@')[2]}"
        self._segments = [Template(segment) for segment in path.split("/")]
        self._query = Template(query)

    def __repr__(self) -> str:
        return self._shown

    def fill(self, values: Mapping[str, Any]) -> str:
        path = "/".join(_segment(segment, values) for segment in self._segments)
        return f"{self._server}{path}{_escaped(self._query, values)}"


def _is_server(server: str) -> bool:
    try:
        parts = urlsplit(f"//{server}")
        return bool(parts.hostname) and parts.port != 0 and server.isprintable() and not re.search(r"[\s\\]", server)
    except ValueError:
        return False


def _segment(template: Template, values: Mapping[str, Any]) -> str:
    filled = _escaped(template, values)
    if not template.names:
        return filled
    if not filled:
        raise Invalid(f"{template.placeholders} in a URL would be empty, and the request would go to what is above it")
    # also for a server that reads %2F as a slash
    if any(part in (".", "..") for part in re.split(r"[/\\]", unquote(filled))):
        raise Invalid(f"{template.placeholders} in a URL would make it lead elsewhere, by a dot or two between slashes")
    return filled


def _escaped(template: Template, values: Mapping[str, Any]) -> str:
    try:
        return "".join(
            part if isinstance(part, str) else quote(_text(part.value(values)), safe="") for part in template._parts
        )
    except UnicodeEncodeError:
        raise Invalid(f"what fills {template.placeholders} is not Unicode text") from None


# -- headers and bodies -----------------------------------------------------------------------------------------------
class HeaderTemplate(Template):
    """The value of a header of this name."""

    __slots__ = ("_name",)

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self._name = name
        _sendable("".join(part for part in self._parts if isinstance(part, str)), name)

    def fill(self, values: Mapping[str, Any]) -> str:
        return _sendable(super().fill(values), self._name)


def _sendable(value: str, name: str) -> str:
    if _UNSENDABLE.search(value):
        raise Invalid(f"the header {name} would contain a line break or a NUL")
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        raise Invalid(f"the header {name} would contain characters outside Latin-1, which is all HTTP has") from None
    return value


class BodyTemplate:
    """A JSON structure in which every text is a template (the names of fields are not). None: the job's data."""

    __slots__ = ("_build", "names")

    def __init__(self, body: Any = None) -> None:
        found: set[str] = set()
        plain = "{data}" if body is None else payload.decode(payload.encode(body, "the template of a body"))
        self._build = _compiled(plain, found)
        self.names = frozenset(found)
        """The names that must be given to fill the template."""

    def fill(self, values: Mapping[str, Any]) -> Any:
        return self._build(values)


def _compiled(body: Any, names: set[str]) -> Callable[[Mapping[str, Any]], Any]:
    if isinstance(body, str):
        template = Template(body)
        names |= template.names
        return template.value
    if isinstance(body, list):
        items = [_compiled(item, names) for item in body]
        return lambda values: [item(values) for item in items]
    if isinstance(body, dict):
        fields = {name: _compiled(item, names) for name, item in body.items()}
        return lambda values: {name: item(values) for name, item in fields.items()}
    return lambda _values: body
