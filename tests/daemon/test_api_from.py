"""From where a change came, as the audit log has it: the connection's address, or what a proxy says that is trusted."""

from __future__ import annotations

import json
from pathlib import Path

from tests.daemon.api_serving import Site, site

CALLER = {"x-forwarded-for": "198.51.100.9, 203.0.113.7"}
"""The first is what the caller itself has sent, the last what the proxy has added."""


def address_of(served: Site, **headers: str) -> str:
    admin = served.admin()
    name = f"t{admin.token[-8:].replace('-', '_')}"
    got = served.daemons[0].call("POST", "/v1/tenants", {"tenant": name}, admin.token, headers)
    assert got.status == 201, got
    return str(admin("GET", "/v1/audit?limit=1").json["entries"][0]["address"])


def test_nobody_is_believed_who_is_not_named() -> None:
    assert address_of(site(), **CALLER) == "127.0.0.1"


def test_a_proxy_that_is_named_is_believed_and_its_callers_are_not(tmp_path: Path) -> None:
    served = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    try:
        daemon = served.daemon("--trusted-proxy", "127.0.0.0/8", "--trusted-proxy", "10.0.0.5", "--log-format", "json")
        assert address_of(served, **CALLER) == "203.0.113.7"
        assert address_of(served, **{"x-forwarded-for": "203.0.113.7, 10.0.0.5"}) == "203.0.113.7"
        assert address_of(served) == "127.0.0.1"
        acme = served.tenant(daemon)
        assert acme.add("mail", b"x", **CALLER), "the short way of posts goes on"
        assert daemon.call("GET", "/login").body.startswith(b"log in, or send the header")
        daemon.stop()
        lines = {one["event"]: one for one in map(json.loads, daemon.log.splitlines())}  # and nothing else
        assert lines["starting"]["database"] == served.url
        assert lines["listening"]["address"] == daemon.address
    finally:
        served.close()
