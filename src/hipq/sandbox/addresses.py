"""The hosts that handlers may reach. Every address of a name is checked, and then one of them is used.

A host without a port stands for the ports of the web: else a list of them would open a mail server, or a database, too.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Final

from hipq.errors import Invalid, shown

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
PUBLIC: Final = "public"
WEB: Final = frozenset((80, 443))
"""The ports of a host for which none is written."""
ANY: Final = "*"
_WITH_PORT: Final = re.compile(r"([^:]+|\[.*\]):([1-9][0-9]{0,4}|\*)")
_HOST: Final = re.compile(r"[A-Za-z0-9_.:%-]{1,255}")
"""Names and addresses, with the zone of an IPv6 address."""
_TRANSLATED: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
"""NAT64: another spelling of an IPv4 address, in its last 32 bits."""
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_NOT_PUBLIC: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.88.99.0/24", "100.64.0.0/10", "fec0::/10", "2001::/23", "5f00::/16",  # relays, carriers' networks
            "192.0.0.0/24", "3fff::/20",  # for protocols, among them Oracle Cloud's metadata; for documentation
            "168.63.129.16/32",  # Azure's own services, on every machine there
            "192.31.196.0/24", "192.175.48.0/24", "2001:4:112::/48", "2620:4f:8000::/48",  # AS112: a site's own
        ),
    )
)  # fmt: skip
"""Networks that some versions of Python's library take for public although nobody on the internet is in them."""
_ISATAP: Final = 0x5EFE
"""The mark in bits 32 to 63 of an IPv6 address (bit 57 ignored) that ends with an IPv4 address inside a site."""


class Ports(frozenset[int]):
    """Those that are open; empty: all of them."""

    def has(self, port: int) -> bool:
        return not self or not port or port in self


class Allowed:
    """The rules in `http_allow`, and in the `network` of a handler."""

    def __init__(self, allow: Iterable[str], what: str = "http_allow") -> None:
        self._public: list[Ports] = []
        self._names: dict[str, list[Ports]] = {}
        self._networks: list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, Ports]] = []
        for entry in allow:
            word, ports = _parts(entry.strip().lower())
            if word == PUBLIC and ports is not None:
                self._public.append(ports)
            elif ports is not None and (network := _network(word)):
                self._networks.append((network, ports))
            elif word and ports is not None and not set(word) & set("/:@ []"):
                self._names.setdefault(word, []).append(ports)
            else:
                raise Invalid(
                    f"{entry!r:.80} in {what} is neither a host, nor an address, nor 'public', with a port or ':*' "
                    "behind it if that is not 80 or 443"
                )

    def within(self, narrower: Iterable[str]) -> Allowed:
        """What these rules allow and, unless there are none, the narrower ones, too."""
        rules = list(narrower)
        return _Both(self, Allowed(rules)) if rules else self

    def by_name(self, host: str, port: int = 0) -> bool:
        """Whether the rules allow this name, whatever its addresses; at any port, if none is given."""
        host = host.lower().rstrip(".")
        parents = [host.split(".", count)[-1] for count in range(1, host.count(".") + 1)]
        names = (host, *(f"*.{parent}" for parent in parents))
        return any(ports.has(port) for name in names for ports in self._names.get(name, ()))

    def address(self, address: Address, port: int = 0) -> bool:
        real = plain(address)
        networks = ((one, ports) for one, ports in self._networks if one.version == real.version and ports.has(port))
        if any(real in network for network, _ in networks):
            return True
        if not any(ports.has(port) for ports in self._public):
            return False
        return is_public(real) and not (is_own(real) or is_own(address))

    def pick(self, host: str, found: list[str], port: int) -> list[str]:
        """The addresses to connect to, if all of them are allowed. Invalid names the one that is not."""
        if not found:
            raise Invalid(f"{host:.100} has no address")
        if not self.by_name(host, port):
            for one in found:
                address = ipaddress.ip_address(one.partition("%")[0])
                if self.address(address, port):
                    continue
                if self.by_name(host) or self.address(address):
                    raise Invalid(
                        f"{host:.100} is open to handlers, but not its port {port}: see --http-allow and network"
                    )
                where = "" if host == one else f" at {one},"
                raise Invalid(f"{host:.100} is{where} where handlers may not go")
        return found


class _Both(Allowed):
    """What two rules allow together."""

    def __init__(self, one: Allowed, other: Allowed) -> None:
        super().__init__(())
        self._one, self._other = one, other

    def pick(self, host: str, found: list[str], port: int) -> list[str]:
        return self._other.pick(host, self._one.pick(host, found, port), port)


def plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 address is another spelling of, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo:
        inner = address.teredo[1]
    if inner is None and any(address in network for network in (*_TRANSLATED, _COMPATIBLE)) and int(address) > 1:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def is_public(address: Address) -> bool:
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    if address.version == 6 and (int(address) >> 32) & 0xFDFFFFFF == _ISATAP:
        return False
    return address.is_global and not (
        address.is_private or address.is_loopback or address.is_link_local or address.is_multicast
        or address.is_reserved or address.is_unspecified
    )  # fmt: skip


def is_own(address: Address) -> bool:
    """Whether this machine has the address: then the kernel gives it to both ends of a connection. Nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False  # there is no route to it from here
        return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address


def resolve(host: str, port: int) -> list[str]:
    """The host's addresses as the system finds them; it reads numbers as C does: 0x7f000001 is 127.0.0.1. And it reads
    a name up to NUL: of 127.0.0.1, NUL, .shop.example it finds the first part, where lists of names see the last."""
    if not _HOST.fullmatch(host):
        raise Invalid(f"{shown(host)} is no host")
    every = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(where[0]) for *_, where in every))


def _parts(entry: str) -> tuple[str, Ports | None]:
    """A host, and its ports; None if these cannot be."""
    said = _WITH_PORT.fullmatch(entry)
    if said is None:
        return entry.rstrip("."), Ports(WEB)
    host, port = said[1].rstrip("."), said[2]
    if port == ANY:
        return host, Ports()
    return host, Ports((int(port),)) if int(port) < 65_536 else None


def _network(word: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(word.removeprefix("[").removesuffix("]"), strict=False)
    except ValueError:
        return None
