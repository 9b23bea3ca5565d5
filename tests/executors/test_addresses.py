"""Where an http handler may go: the table of spellings that lead to this machine and its neighbours."""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from pathlib import Path

import pytest

from hipq.errors import Invalid
from hipq.sandbox.addresses import Allowed, is_own, is_public, plain, resolve

LOCAL = [
    # loopback
    "127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1",
    "017700000001", "0x7f.0x0.0x0.0x1", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::127.0.0.1",
    "64:ff9b::127.0.0.1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "localhost",
    # this machine, whatever it is called
    "0.0.0.0", "0", "0x0", "00", "::", "::ffff:0.0.0.0", "0.1.2.3",
    # link-local: where clouds keep their keys
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fe80::1", "fe80::a9fe:a9fe", "fd00:ec2::254",
    # private
    "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "fc00::1", "fd12:3456::1",
    "::ffff:10.0.0.1", "fec0::1",
    # multicast, broadcast, reserved, for documents and tests
    "224.0.0.1", "239.255.255.250", "255.255.255.255", "240.0.0.1", "ff02::1", "192.0.2.1", "198.51.100.1",
    "203.0.113.1", "198.18.0.1", "192.0.0.1", "192.88.99.1", "2001:db8::1", "2001::1", "100::1", "3fff::1",
    # what clouds keep behind addresses that look public, and what every site has of its own (AS112)
    "168.63.129.16", "::ffff:168.63.129.16", "0xa83f8110", "192.0.0.192", "64:ff9b::192.0.0.192", "192.31.196.1",
    "192.175.48.6", "2001:4:112::1", "2620:4f:8000::1",
    # ISATAP: an IPv4 address inside a site, behind any prefix
    "2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:10.0.0.1", "2606:4700::5efe:8.8.8.8",
]  # fmt: skip
OPEN = ["93.184.216.34", "8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize("host", LOCAL)
def test_every_spelling_of_what_is_not_public_is_refused(host: str) -> None:
    found = resolve(host, 80)
    assert found
    with pytest.raises(Invalid, match="may not go"):
        Allowed(("public",)).pick(host, found, 443)
    with pytest.raises(Invalid, match="may not go"):
        Allowed(("shop.example", "93.184.216.34")).pick(host, found, 443)


@pytest.mark.parametrize("host", OPEN)
def test_public_addresses_are_open_if_public_is_allowed(host: str) -> None:
    assert Allowed(("public",)).pick(host, [host], 443) == [host]
    with pytest.raises(Invalid, match="may not go"):
        Allowed(()).pick(host, [host], 443)


def test_an_address_is_said_once() -> None:
    with pytest.raises(Invalid, match=r"^127.0.0.1 is where handlers may not go$"):
        Allowed(("public",)).pick("127.0.0.1", ["127.0.0.1"], 443)


def test_one_address_that_is_refused_refuses_the_name() -> None:
    with pytest.raises(Invalid, match=r"shop.example is at 10.0.0.7"):
        Allowed(("public",)).pick("shop.example", ["93.184.216.34", "10.0.0.7"], 443)
    with pytest.raises(Invalid, match="no address"):
        Allowed(("public",)).pick("shop.example", [], 443)


@pytest.mark.parametrize(
    ("allow", "host", "address"),
    [
        ("shop.internal", "shop.internal", "10.0.0.7"), ("shop.internal", "SHOP.internal.", "10.0.0.7"),
        ("*.internal", "a.b.internal", "10.0.0.7"), ("10.0.0.0/8", "anything", "10.2.3.4"),
        ("10.2.3.4", "anything", "::ffff:10.2.3.4"), ("127.0.0.1", "2130706433", "127.0.0.1"),
        ("[::1]", "localhost", "::1"), ("fd00::/8", "x", "fd00::5"), ("localhost", "localhost", "127.0.0.1"),
        ("fe80::1", "x", "fe80::1%eth0"),
    ],
)  # fmt: skip
def test_what_is_named_is_open(allow: str, host: str, address: str) -> None:
    assert Allowed((allow,)).pick(host, [address], 443) == [address]


@pytest.mark.parametrize(
    ("allow", "host"),
    [
        ("internal", "x.internal"),
        ("*.internal", "internal"),
        ("*.internal", "evilinternal"),
        ("a.internal", "b.internal"),
    ],
)
def test_what_is_not_named_is_not(allow: str, host: str) -> None:
    with pytest.raises(Invalid, match="may not go"):
        Allowed((allow,)).pick(host, ["10.0.0.7"], 443)


@pytest.mark.parametrize(
    ("allow", "ports", "others"),
    [
        ("shop.example", (80, 443), (25, 22, 8443, 5432)), ("shop.example:8443", (8443,), (80, 443)),
        ("*.example:25", (25,), (443,)), ("shop.example:*", (1, 443, 65535), ()), ("10.0.0.7:5432", (5432,), (443,)),
        ("10.0.0.0/8:*", (25,), ()), ("10.0.0.7", (80,), (8080,)), ("shop.example.:8443", (8443,), (443,)),
    ],
)  # fmt: skip
def test_a_port_is_open_if_it_is_written_or_the_webs(
    allow: str, ports: tuple[int, ...], others: tuple[int, ...]
) -> None:
    rules = Allowed((allow,))
    for port in ports:
        assert rules.pick("shop.example", ["10.0.0.7"], port) == ["10.0.0.7"]
    for port in others:
        with pytest.raises(Invalid, match=f"shop.example is open to handlers, but not its port {port}"):
            rules.pick("shop.example", ["10.0.0.7"], port)


def test_rules_for_one_host_add_up_and_public_addresses_have_ports_too() -> None:
    rules = Allowed(("shop.example", "shop.example:25", "public:8443"))
    assert [rules.pick("shop.example", ["10.0.0.7"], port) for port in (25, 443)] == [["10.0.0.7"]] * 2
    assert rules.pick("93.184.216.34", ["93.184.216.34"], 8443)
    with pytest.raises(Invalid, match="not its port 443"):
        rules.pick("93.184.216.34", ["93.184.216.34"], 443)


@pytest.mark.parametrize(
    "entry",
    ["", "http://x", "a b", "user@host", "10.0.0.0/99", ":80", "x:0", "x:65536", "x:", "x:http", "public:", "a:1:2"],
)  # fmt: skip
def test_an_entry_that_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(Invalid, match="http_allow"):
        Allowed((entry,))


def test_an_address_inside_another_is_found() -> None:
    for spelling in ("::ffff:1.2.3.4", "64:ff9b::1.2.3.4", "2002:102:304::", "::1.2.3.4"):
        assert plain(ipaddress.ip_address(spelling)) == ipaddress.ip_address("1.2.3.4")
    assert not is_public(ipaddress.ip_address("::1"))


def test_an_address_of_this_machine_is_refused_however_public_it_looks(tmp_path: Path) -> None:
    """In a network of its own: no machine that runs this has 93.184.216.34."""
    program = (
        "from hipq.sandbox.addresses import Allowed\n"
        "import ipaddress\n"
        "for one in ('93.184.216.34', '93.184.216.35', '2606:4700::7', '64:ff9b::93.184.216.34'):\n"
        "    print(Allowed(('public',)).address(ipaddress.ip_address(one)))\n"
    )
    setup = "ip link set lo up && ip address add 93.184.216.34/32 dev lo && ip address add 2606:4700::7/128 dev lo"
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        f"{setup} && exec {sys.executable} program.py",
    ]
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip(f"this machine makes no network namespaces: {done.stderr[-200:]}")
    assert done.stdout.split() == ["False", "True", "False", "False"]


def test_loopback_is_this_machine_and_others_are_not() -> None:
    assert is_own(ipaddress.ip_address("127.0.0.1"))
    assert not is_own(ipaddress.ip_address("192.0.2.1"))
