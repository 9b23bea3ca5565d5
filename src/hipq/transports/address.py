"""The URL of a stream: `kafka://user:password@broker:9092/payments.in?group=shop`.

A name alone is on the usual server: `kafka://payments.in`. That server is $HIPQ_KAFKA_URL (which is where a password
belongs), else the one on this machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from hipq.errors import Invalid, TransportUnavailable

EXAMPLES: Final = {
    "kafka": "kafka://broker:9092/TOPIC",
    "sqs": "sqs://QUEUE?region=eu-west-1",
    "kinesis": "kinesis://STREAM?region=eu-west-1",
    "nats": "nats://server:4222/SUBJECT",
    "amqp": "amqp://user:password@server/QUEUE",
    "amqps": "amqps://user:password@server/QUEUE",
    "redis": "redis://server:6379/STREAM",
    "rediss": "rediss://server:6379/STREAM",
    "mqtt": "mqtt://server:1883/TOPIC",
    "mqtts": "mqtts://server:8883/TOPIC",
}
"""An example URL for each scheme."""

_WHERE: Final = ("region", "endpoint")
"""Options that say which server is meant."""


class Address(NamedTuple):
    scheme: str
    hosts: str
    """The servers as in the URL, `host:port` or several with commas; "" = none named."""
    user: str
    password: str
    name: str
    """The topic, queue, stream or subject: the path without its first slash."""
    options: Mapping[str, str]

    def __str__(self) -> str:
        """The URL for people, without password and options."""
        is_token = self.scheme == "nats" and not self.password  # with NATS, a user without a password is a token
        user = f"{'…' if is_token else self.user}@" if self.user else ""
        return f"{self.scheme}://{user}{self.hosts}/{self.name}" if self.hosts else f"{self.scheme}://{self.name}"

    def __repr__(self) -> str:
        return f"<Address {self}>"

    @property
    def identity(self) -> str:
        """The address with all that tells it from streams of the same name elsewhere; safe to show."""
        where = "&".join(f"{name}={self.options[name]}" for name in _WHERE if name in self.options)
        return f"{self}?{where}" if where else str(self)

    def invalid(self, why: str) -> Invalid:
        """The error for a use of this address that can never work."""
        return Invalid(f"{self}: {why}")

    def unavailable(self, why: str) -> TransportUnavailable:
        """The error for a use of this address that may work later."""
        return TransportUnavailable(f"{self}: {why}")

    def allow(self, names: Collection[str], *, dotted: bool = False) -> None:
        """Refuse unknown options. `dotted`: names with a dot belong to the client library and are allowed."""
        for name in self.options:
            if name not in names and not (dotted and "." in name):
                raise self.invalid(f"there is no option {name!r:.40}; there are {', '.join(sorted(names))}")

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """The value of an option that is a whole number."""
        value = self.options.get(name, str(default))
        if not value.isascii() or not value.isdigit() or not least <= int(value[:10]) <= most:
            raise self.invalid(f"{name} must be a whole number from {least} to {most}, not {value!r:.40}")
        return int(value)

    def servers(self, usual: int) -> list[tuple[str, int]]:
        """The hosts and ports of the servers: by default this machine and the `usual` port."""
        found = []
        for one in (self.hosts or "localhost").split(","):
            parts = re.fullmatch(r"\[([0-9A-Fa-f:.%]+)\](?::(\d{1,5}))?|([^\s:/\[\]]+)(?::(\d{1,5}))?", one)
            host, port = (parts[1] or parts[3], int(parts[2] or parts[4] or usual)) if parts else ("", 0)
            if not 0 < port < 65_536:
                raise self.invalid(f"{one!r:.60} is no server; one looks like server:{usual}")
            found.append((host, port))
        return found

    def server(self, usual: int) -> tuple[str, int]:
        """The host and port of the server, for systems of which a URL names only one."""
        if "," in self.hosts:
            raise self.invalid(f"{self.hosts!r:.60} is no server; one looks like server:{usual}")
        return self.servers(usual)[0]


def address(url: str) -> Address:
    """Parse a URL; raises Invalid, in one sentence that shows no password."""
    if not isinstance(url, str) or not url.isprintable():
        raise Invalid("the URL of a stream must be text, without control characters or broken Unicode")
    scheme, is_url, rest = url.partition("://")
    if not is_url or scheme not in EXAMPLES:
        known = ", ".join(f"{one}://" for one in EXAMPLES)
        # anything longer or stranger may contain a secret and is not shown
        is_plain = re.fullmatch(r"[\w.-]{0,40}", scheme)
        given = "this" if not is_plain else f"{scheme}://…" if is_url else repr(url)
        raise Invalid(f"{given} is no URL of a stream; there are {known}")
    found = _parsed(scheme, rest)
    if not found.name:
        raise Invalid(f"{scheme}://… does not say what to listen to or send to; it looks like {EXAMPLES[scheme]}")
    if found.hosts:
        return found
    usual = os.environ.get(f"HIPQ_{scheme.upper()}_URL", "")
    if not usual:
        return found
    other, is_url, where = usual.partition("://")
    host, has_options, options = where.partition("?")
    server = _parsed(scheme, f"{host.rstrip('/')}/{has_options}{options}")
    if not is_url or other != scheme or server.name:
        example = EXAMPLES[scheme].rpartition("/")[0]
        raise Invalid(f"$HIPQ_{scheme.upper()}_URL must be the URL of a server, like {example}")
    login = (found.user, found.password) if found.user else (server.user, server.password)
    return Address(scheme, server.hosts, *login, found.name, {**server.options, **found.options})


def _parsed(scheme: str, rest: str) -> Address:
    where, _, query = rest.partition("?")  # "#" has no special meaning here: it is part of MQTT topics
    server, has_path, name = where.partition("/")
    if not has_path:
        if "@" in server or ":" in server or "," in server:
            raise Invalid(f"{scheme}://… names a server and nothing on it; it looks like {EXAMPLES[scheme]}")
        server, name = "", server
    login, _, hosts = server.rpartition("@")
    if "@" in name and not all(re.fullmatch(r"[^:]*(:[0-9]*)?|\[.*\](:[0-9]*)?", one) for one in hosts.split(",")):
        raise Invalid(f"{scheme}://… has a password with a / in it: write that as %2F")
    user, _, password = login.partition(":")
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict"))
        name, user, password = (unquote(part, errors="strict") for part in (name, user, password))
    except ValueError:  # broken percent-encoding is a ValueError, too
        said = f"{scheme}://… has options or names that cannot be read; write special characters as %XX"
        raise Invalid(said) from None
    if not all(part.isprintable() for part in (hosts, name, user, password, *options, *options.values())):
        raise Invalid(f"{scheme}://… contains control characters")
    return Address(scheme, hosts, user, password, name, options)
