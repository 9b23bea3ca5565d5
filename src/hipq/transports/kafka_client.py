"""A client of librdkafka, and its errors in sentences."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from hipq.errors import HipqError
from hipq.transports.address import Address

CREATION_SECONDS: Final = 2.0
"""How long a topic may be missing before that is an error: a server that creates topics needs a moment."""

_CLIENT: Final = {"client.id": "hipq", "reconnect.backoff.max.ms": "1000", "socket.keepalive.enable": "true"}
_E: Final = KafkaError
NO_TOPIC: Final = {_E.UNKNOWN_TOPIC_OR_PART, _E._UNKNOWN_TOPIC, _E._UNKNOWN_PARTITION}
_FORBIDDEN: Final = {
    _E.TOPIC_AUTHORIZATION_FAILED, _E.GROUP_AUTHORIZATION_FAILED, _E.CLUSTER_AUTHORIZATION_FAILED,
}  # fmt: skip
_TOO_BIG: Final = {_E.MSG_SIZE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE, _E.INVALID_RECORD}
_SILENT: Final = {_E._TIMED_OUT, _E._MSG_TIMED_OUT, _E._TRANSPORT, _E._ALL_BROKERS_DOWN, _E._WAIT_COORD}
"""Errors that say only that there was no answer; an earlier background error says why."""


def settings(address: Address) -> dict[str, str]:
    """The settings in a URL: the servers, the login, and librdkafka's own options."""
    login: dict[str, str] = {}
    if address.user or address.password:
        login = {"sasl.username": address.user, "sasl.password": address.password}
        if "security.protocol" not in address.options:
            login["security.protocol"] = "SASL_PLAINTEXT"
        if "sasl.mechanisms" not in address.options:
            login["sasl.mechanism"] = "PLAIN"
    theirs = {name: value for name, value in address.options.items() if "." in name}
    servers = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in address.servers(9092))
    return {"bootstrap.servers": ",".join(servers), **login, **theirs}


def client(address: Address, kind: Any, ours: Mapping[str, Any], *, connect: bool = True) -> Any:
    """A producer or a consumer with these settings and those of the URL."""
    servers = {} if connect else {"bootstrap.servers": ""}
    try:
        return kind({**_CLIENT, **ours, **settings(address), **servers}, logger=Log)
    except KafkaException as refused:
        raise address.invalid(_plain(address, refused.args[0].str())) from None


class Log:
    """A logger that drops messages: librdkafka would write them to standard error."""

    @staticmethod
    def log(_level: int, *words: Any) -> None:
        logging.getLogger("hipq").debug(*words)


class BackgroundError:
    """The last error that librdkafka reported in the background, and the sentence made of it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.clear()

    def clear(self) -> None:
        self._last: KafkaError | None = None
        self.down = False

    def __call__(self, error: KafkaError) -> None:
        if error.code() == _E._ALL_BROKERS_DOWN:
            self.down = True
        # later tries would hide an authentication error
        elif self._last is None or self._last.code() != _E._AUTHENTICATION:
            self._last = error
            self.down = self.down or error.code() == _E._AUTHENTICATION

    @property
    def has_error(self) -> bool:
        """Whether librdkafka has reported an error since the last success."""
        return self.down or self._last is not None

    def explains(self, error: KafkaError) -> bool:
        """Whether the cause of this error is known."""
        return error.code() not in _SILENT or self._last is not None

    def error(self, error: KafkaError) -> HipqError:
        if error.code() in _SILENT and self._last is not None:
            error = self._last
        code, text = error.code(), _plain(self._address, error.str())
        if code in _TOO_BIG:
            return self._address.invalid(f"the server does not take this message ({text})")
        return self._address.unavailable(self._why(code, text))

    def _why(self, code: int, text: str) -> str:
        where = re.sub(r"^\w+://|^GroupCoordinator: ", "", text).partition("/")[0].partition(": ")[0]
        if code in NO_TOPIC:
            return f"there is no topic {self._address.name}; create it on the server"
        if code in _FORBIDDEN:
            return f"the server does not permit it to {self._address.user or 'anybody without a user name'} ({text})"
        if code == _E._AUTHENTICATION:
            return f"the server does not accept the user name or the password ({text})"
        if code == _E._RESOLVE:
            return f"there is no host called {where.rpartition(':')[0]}"
        if "refused" in text:
            return f"nobody listens at {where} (connection refused)"
        if code in _SILENT and (not text or "Local: " in text or "Failed to get metadata" in text):
            return "the server did not answer in time"
        return text

    def look(self, client: Any, seconds: float, poll_errors: Callable[[], Any] | None = None) -> None:
        """Ask for the topic until the server answers. `poll_errors` makes librdkafka report its background errors; with
        it, a server that no address reaches is an error, too."""
        name, now = self._address.name, time.monotonic()
        until, created = now + seconds, now + min(seconds, CREATION_SECONDS)
        while True:
            left = until - time.monotonic()
            try:
                wait = max(0.01, min(left, 0.2) if poll_errors else left)
                error = client.list_topics(name, timeout=wait).topics[name].error
                if error is None or (error.code() not in NO_TOPIC | _FORBIDDEN and error.retriable()):
                    self.clear()
                    return
                over = error.code() not in NO_TOPIC or time.monotonic() > created
                time.sleep(0 if over else 0.1)
            except KafkaException as refused:
                error = refused.args[0]
                if poll_errors:
                    poll_errors()
                over = time.monotonic() > until or (poll_errors is not None and self.down)
            if over:
                raise self.error(error) from None


def _plain(address: Address, text: str) -> str:
    """librdkafka's message without anything secret."""
    secret = (value for name, value in address.options.items() if re.search("password|secret|key|token|config", name))
    for one in (address.password, *secret):
        text = text.replace(one, "***") if one else text
    return re.sub(r" \(after \d+ms in state \w+\)", "", text)
