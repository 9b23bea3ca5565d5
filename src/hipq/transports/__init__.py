"""Where requests go and answers come from: one file for each system, the same two verbs.

from hipq import transports

transports.send("kafka://payments.out", {"amount": 5}, job=job)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from hipq.errors import Invalid, shown
from hipq.job import payload
from hipq.job.view import sends
from hipq.transports.address import Address, address
from hipq.transports.base import Checkpoints, Message, Outgoing, Reply, Sender, Source, headers_of
from hipq.transports.recording import recorder

if TYPE_CHECKING:
    from hipq.job.view import Job

__all__ = ["Address", "Message", "Reply", "address", "headers_of", "send", "sender", "source"]

_NEEDS: Final = {
    "http": ("httpx2", "http"), "kafka": ("confluent-kafka", "kafka"), "sqs": ("boto3", "sqs"),
    "kinesis": ("boto3", "sqs"), "nats": ("nats-py", "nats"), "amqp": ("aio-pika", "amqp"),
    "redis": ("redis", "redis"), "mqtt": ("paho-mqtt", "mqtt"),
}  # fmt: skip
"""The library that each transport needs, and the extra of hipq that installs it."""
SECONDS: Final = 30.0
"""How long `send` waits for the server."""

MANY: Final = 50
IDLE_SECONDS: Final = 300.0
"""Beyond MANY senders, those unused for IDLE_SECONDS are closed: some programs have a URL for each device."""

_senders: dict[str, _StreamSender] = {}
_lock = threading.Lock()


def send(
    url: str,
    data: Any = None,
    *,
    key: str = "",
    headers: Mapping[str, str] | None = None,
    job: Job[Any] | None = None,
    seconds: float = SECONDS,
) -> Reply | None:
    """Send a message to this `url` and wait until the server has it, `seconds` at most. `data` is sent as JSON, bytes
    as they are, with these `headers` and this `key`.

    `job`: the job that sends the request; its key, id and attempt go along, so that the answer can name them.
    """
    body = data if isinstance(data, bytes) else payload.encode(data, "the message").encode()
    every = {**(headers_of(job) if job is not None else {}), **(headers or {})}
    found = sender(url)
    if job is not None:
        sends(job, _shown(url))
    return found.send(Outgoing(body, key or (job.key if job is not None else ""), every), seconds)


def _shown(url: str) -> str:
    """Where a message goes, for people: tokens are in the query of a URL and even in its path."""
    if url.startswith(("http://", "https://")):
        parts = urlsplit(url)
        return f"POST {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return str(address(url))


def sender(url: str) -> Sender:
    """The sender for this URL, one in each process."""
    if not isinstance(url, str):
        raise Invalid(f"where to send must be a URL, not {shown(url)}")
    if url.startswith(("http://", "https://")):
        http: Sender = _file("http").sender(url)
        return http  # an HTTP sender has no state of its own, and each job may have another URL
    now = time.monotonic()
    with _lock:
        if url not in _senders:
            _senders[url] = _StreamSender(url, open_sender(address(url)))
        found = _senders[url]
        found.used = now
        idle = [one for one in _senders if now - _senders[one].used > IDLE_SECONDS] if len(_senders) > MANY else []
        closed = [_senders.pop(one) for one in idle]
    for old in closed:
        old.close()
    return found


class _StreamSender:
    """Sends to one stream, unless a test records what is sent."""

    def __init__(self, url: str, network: Sender) -> None:
        self._url = url
        self._network = network  # the network sender connects when it sends
        self.close = network.close
        self.used = 0.0

    def send(self, message: Outgoing, seconds: float) -> Reply | None:
        taker = recorder()
        return taker.record("", self._url, message) if taker else self._network.send(message, seconds)


def open_sender(where: Address) -> Sender:
    """A sender of the caller's own."""
    check(where)
    found: Sender = _file(where.scheme).sender(where)
    return found


def source(where: Address, group: str, checkpoints: Checkpoints) -> Source:
    """A source of the caller's own; the option `group` of the URL goes before the given group."""
    if recorder():
        raise Invalid(f"{where}: a test connects to no server; harness(..., send_for_real=True) does")
    check(where)
    found: Source = _file(where.scheme).source(where, where.options.get("group") or group, checkpoints)
    return found


def check(where: Address) -> None:
    """Refuse a URL whose library is not installed, or that its transport cannot read."""
    _file(where.scheme).check(where)


def _file(scheme: str) -> ModuleType:
    name = scheme if scheme in _NEEDS else scheme.removesuffix("s")
    try:
        return import_module(f"hipq.transports.{name}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("hipq"):
            raise
        library, extra = _NEEDS[name]
        raise Invalid(f"{scheme}:// needs {library}: pip install 'hipq[{extra}]'") from None


def _forget() -> None:
    """Forget the senders in a forked child: their connections belong to the parent."""
    global _lock
    _lock = threading.Lock()
    _senders.clear()


os.register_at_fork(after_in_child=_forget)
