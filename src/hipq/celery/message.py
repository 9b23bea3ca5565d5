"""A task's message as hipq keeps it: what the broker would have got, as JSON, and back again.

The body is serialized when the task is sent, and never again. Headers and properties go through kombu's JSON, which
restores times, decimals and bytes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from celery.utils.time import maybe_iso8601, maybe_make_aware
from kombu import Exchange, Queue, binding
from kombu.compression import compress
from kombu.serialization import dumps as serialized
from kombu.utils.json import dumps, loads

from hipq.errors import Invalid

NOT_KEPT: Final = ("serializer", "compression", "retry", "retry_policy")
"""Celery's arguments to a producer that are not kept: those that have had their effect, and those that the publisher
decides."""


class TaskMessage(msgspec.Struct, frozen=True):
    """The data of a job that publishes the message. The first fields are for people who look at the job."""

    task: str
    id: str
    eta: str
    """When the task is due, as its header says."""
    retries: int
    replaced: int
    """How often the task has replaced itself by another."""
    exchange: str
    content_type: str
    content_encoding: str
    body: str
    is_base64: bool
    expires_at: float | None
    """When the message expires, on its sender's clock; the broker is told how much time is left."""
    headers: str
    """The headers, as kombu's JSON."""
    options: str
    """The producer's other arguments as kombu's JSON: routing key, priority, correlation id, ..."""
    declare: str

    def text(self) -> str | bytes:
        return b64decode(self.body) if self.is_base64 else self.body

    def to_declare(self, configured: Mapping[str, Any]) -> list[Any]:
        """The queues and exchanges that must exist. One that is configured here is used as it is configured now.

        This includes the queues behind the exchange, which Celery does not declare for a task that is sent to an
        exchange: in most transports a new connection takes any exchange for a direct one until it is declared.
        """
        behind = [queue for queue in configured.values() if self.exchange and _leads(self.exchange, queue)]
        return [*(_entity(one, configured) for one in loads(self.declare)), *behind]

    def is_same_as(self, other: TaskMessage) -> bool:
        """Whether both are one run of one task. A retry has the id of the run before, and so has a replaced task."""
        return (self.id, self.retries, self.replaced) == (other.id, other.retries, other.replaced)


def message(name: str, body: Any, now: float, options: dict[str, Any]) -> TaskMessage:
    """The message that Celery hands to a producer (`options`: as `Producer.publish` takes them)."""
    publish_options = {key: value for key, value in options.items() if key not in NOT_KEPT}
    headers, declare, expiration = (
        publish_options.pop("headers", None) or {},
        publish_options.pop("declare", None),
        publish_options.pop("expiration", None),
    )
    about = body if isinstance(body, dict) else headers  # protocol 1 has no headers
    content_type, encoding, text = _content(body, publish_options, options, headers)
    exchange = publish_options.pop("exchange", None) or ""
    if isinstance(exchange, Exchange):
        publish_options["delivery_mode"] = publish_options.get("delivery_mode") or exchange.delivery_mode
        exchange = exchange.name
    try:
        return TaskMessage(
            task=name,
            id=about["id"],
            eta=about["eta"],
            retries=about.get("retries") or 0,
            replaced=about.get("replaced_task_nesting") or 0,
            exchange=exchange,
            content_type=content_type,
            content_encoding=encoding,
            body=b64encode(text).decode() if isinstance(text, bytes) else text,
            is_base64=isinstance(text, bytes),
            expires_at=None if expiration is None else now + expiration,
            headers=dumps(headers),
            options=dumps(publish_options),
            declare=dumps([_described(one) for one in declare]),
        )
    except TypeError as error:
        raise Invalid(f"task {name} cannot be kept until its time: a header or option is not JSON: {error}") from error


def eta_of(message: Any, headers: Mapping[str, Any] | None, app: Any) -> datetime | None:
    """When a message made by Celery is due, as a worker will understand it; this includes times without a zone."""
    own, _properties, body, _event = message
    text = body.get("eta") if isinstance(body, dict) else {**own, **(headers or {})}.get("eta")
    if not text:
        return None
    try:
        found = maybe_make_aware(maybe_iso8601(text), app.timezone)
        return found.astimezone(UTC) if isinstance(found, datetime) else None
    except (ValueError, TypeError, OverflowError):
        return None  # a worker will say what is wrong with it


def _content(
    body: Any, publish_options: dict[str, Any], options: Mapping[str, Any], headers: dict[str, Any]
) -> tuple[str, str, str | bytes]:
    """Content type, encoding and body as `Producer.publish` makes them; it notes the compression among the headers."""
    content_type, encoding = publish_options.pop("content_type", None), publish_options.pop("content_encoding", None)
    if not content_type:
        content_type, encoding, body = serialized(body, serializer=options.get("serializer"))
    if compression := options.get("compression"):
        body, headers["compression"] = compress(body, compression)
    return content_type, encoding or ("utf-8" if isinstance(body, str) else "binary"), body


def _described(entity: Any) -> dict[str, Any]:
    kind = "queue" if isinstance(entity, Queue) else "exchange"
    return {kind: entity.as_dict(recurse=True)}


def _entity(described: dict[str, Any], configured: Mapping[str, Any]) -> Any:
    if found := described.get("exchange"):
        return Exchange(**found)
    queue = described["queue"]
    if queue["name"] in configured:
        return configured[queue["name"]]
    bindings = [binding(**one | {"exchange": _exchange(one["exchange"])}) for one in queue["bindings"] or ()]
    return Queue(**queue | {"exchange": _exchange(queue["exchange"]), "bindings": bindings})


def _leads(exchange: str, queue: Any) -> bool:
    return any(one and one.name == exchange for one in (queue.exchange, *(two.exchange for two in queue.bindings)))


def _exchange(described: dict[str, Any] | None) -> Any:
    return Exchange(**described) if described else None
