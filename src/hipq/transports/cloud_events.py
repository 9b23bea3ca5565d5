"""CloudEvents 1.0: the event that a message is, as its JSON envelope, whichever way it was sent. Pure.

A structured event is a JSON object with its attributes and its data. A binary one has its attributes in headers, whose
names begin as the binding of each system says, and its data as the body.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from hipq.errors import Invalid, shown
from hipq.job import payload

_MEDIA: Final = "application/cloudevents"
_PREFIXES: Final = ("ce-", "ce_", "cloudevents:", "cloudevents_", "")
"""How the headers begin: of HTTP, NATS and RabbitMQ, of Kafka, of AMQP in two ways, and of MQTT."""
_REQUIRED: Final = ("specversion", "id", "source", "type")
_ATTRIBUTE: Final = re.compile("[a-z0-9]+")
_WHAT: Final = "the CloudEvent"
_DATA: Final = "the CloudEvent's data"


def event_in(headers: Mapping[str, str], body: bytes, *, is_quoted: bool) -> dict[str, Any] | None:
    """The event that a message with these headers (names in lower case) and this body is; None if it is none. Invalid
    if it says that it is one, and is not right. `is_quoted`: headers are percent-encoded, as of HTTP and NATS."""
    kind = _media(headers.get("content-type", ""))
    if kind.startswith(_MEDIA):
        if kind != f"{_MEDIA}+json":
            raise Invalid(f"{shown(kind)} is not understood: send CloudEvents one by one, as {_MEDIA}+json")
        return _structured(payload.parse(body, _WHAT))
    for prefix in _PREFIXES:
        if f"{prefix}specversion" in headers and (prefix or all(name in headers for name in _REQUIRED)):
            return _binary(headers, prefix, body, is_quoted)
    return _undeclared(body) if b'"specversion"' in body else None


def _structured(event: Any) -> dict[str, Any]:
    if not isinstance(event, dict):
        raise Invalid(f"{_WHAT} must be a JSON object, not {shown(event)}")
    event = {name: value for name, value in event.items() if value is not None}  # null is the same as nothing
    if "data_base64" in event:
        if "data" in event:
            raise Invalid(f"{_WHAT} has both data and data_base64")
        try:
            raw = b64decode(event.pop("data_base64"), validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise Invalid(f"{_WHAT} has data_base64 that is not base64") from None
        event["data"] = _decoded(raw, _media(str(event.get("datacontenttype", ""))))
    event.setdefault("data", None)
    return _checked(event)


def _undeclared(body: bytes) -> dict[str, Any] | None:
    """A structured event of which no header says so: many systems have no header for it."""
    try:
        event = payload.parse(body)
    except Invalid:
        return None
    is_one = isinstance(event, dict) and all(isinstance(event.get(name), str) for name in _REQUIRED)
    return _structured(event) if is_one else None


def _binary(headers: Mapping[str, str], prefix: str, body: bytes, is_quoted: bool) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for header, value in headers.items():
        name = header.removeprefix(prefix)
        if header.startswith(prefix) and _ATTRIBUTE.fullmatch(name):
            event[name] = _unquoted(name, value) if is_quoted else value
    if "content-type" in headers:
        event["datacontenttype"] = headers["content-type"]
    kind = _media(event.get("datacontenttype", ""))
    event["data"] = _decoded(body, kind or ("application/json" if _is_json(body) else ""))
    return _checked(event)


def _checked(event: dict[str, Any]) -> dict[str, Any]:
    for name in _REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            raise Invalid(f"{_WHAT} has no {name}")
    if event["specversion"] != "1.0":
        raise Invalid(f"{_WHAT} is of version {shown(event['specversion'])}, and 1.0 is the one that is understood")
    if not isinstance(event.get("subject", ""), str):
        raise Invalid(f"{_WHAT} has a subject that is not text")
    return event


def _media(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _decoded(raw: bytes, kind: str) -> Any:
    """Bytes as JSON can say them: JSON as what it says, text as text, all else in base64, by what they are said to
    be."""
    if not raw:
        return None
    if kind.endswith(("/json", "+json")):
        return payload.parse(raw, _DATA)
    is_text = kind.startswith("text/") or kind.endswith(("/xml", "+xml"))
    try:
        text = raw.decode() if is_text or not kind else ""
    except UnicodeDecodeError:
        if is_text:
            raise Invalid(f"{_DATA} is not UTF-8 text") from None
        text = ""
    return text if text and "\x00" not in text else b64encode(raw).decode()


def _is_json(body: bytes) -> bool:
    try:
        payload.parse(body)
    except Invalid:
        return False
    return True


def _unquoted(name: str, value: str) -> str:
    """An attribute as headers of HTTP have it: with %XX, and perhaps in quotes, as it used to be."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise Invalid(f"{_WHAT} has an attribute {name} that is not UTF-8 text") from None
