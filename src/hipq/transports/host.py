"""The one server that a URL names."""

from __future__ import annotations

from urllib.parse import urlsplit

from hipq.errors import Invalid
from hipq.transports.address import Address


def host_and_port(address: Address, usual: int) -> tuple[str, int]:
    """The server's host and port: by default this machine and the `usual` port."""
    try:
        found = urlsplit(f"//{address.hosts}")
        host, port = found.hostname or "127.0.0.1", found.port or usual
    except ValueError:
        host, port = ",", 0
    if "," in host or "@" in address.hosts:
        raise Invalid(f"{address}: {address.hosts!r:.80} is not a server and its port, like server:{usual}")
    return host, port
