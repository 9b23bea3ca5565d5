"""Server-sent events: what happens to a tenant's jobs is told while it happens, to that tenant alone."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.daemon.api_serving import Daemon, Site, Tenant, eventually, site
from tests.databases import STORES


class Reader:
    """Reads events from a socket, one by one."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._text = b""

    def upto(self, end: bytes) -> bytes:
        """All before this, which has come; what follows is left."""
        while end not in self._text:
            part = self._link.recv(65536)
            assert part, self._text
            self._text += part
        found, _, self._text = self._text.partition(end)
        return found

    def rest(self) -> bytes:
        """All that still comes, until it hangs up or says that this was all."""
        while not self._text.endswith(b"0\r\n\r\n") and (part := self._link.recv(65536)):
            self._text += part
            assert b": still here" not in self._text, "it goes on"
        return self._text

    def event(self) -> dict[str, Any]:
        while True:
            text = self.upto(b"\n\n")
            data = re.search(rb"^data: (.*)$", text, flags=re.MULTILINE)
            if data:
                found: dict[str, Any] = json.loads(data[1])
                assert re.search(rb"^event: " + found["event"].encode() + rb"$", text, flags=re.MULTILINE)
                if "event_id" in found:
                    assert re.search(rb"^id: " + found["event_id"].encode() + rb"$", text, flags=re.MULTILINE)
                return found

    def until(self, name: str) -> list[dict[str, Any]]:
        found = [self.event()]
        while found[-1]["event"] != name:
            found.append(self.event())
        return found


@contextmanager
def following(tenant: Tenant, last: str = "") -> Iterator[Reader]:
    more = f"Last-Event-ID: {last}\r\n" if last else ""
    head = f"Host: x\r\nAuthorization: Bearer {tenant.token}\r\n{more}"
    request = f"GET /v1/{tenant.name}/events HTTP/1.1\r\n{head}\r\n"
    with tenant.daemon.connect() as link:
        link.sendall(request.encode())
        reader = Reader(link)
        replied = reader.upto(b"\r\n\r\n")
        assert replied.startswith(b"HTTP/1.1 200 ")
        assert b"text/event-stream" in replied
        reader.upto(b": these are the events from now on")
        yield reader


@pytest.mark.parametrize("store", STORES)
def test_what_happens_to_a_job_is_told_in_order(store: str) -> None:
    acme, bob = site(store).tenant(), site(store).tenant()
    acme.handler("mail", "return payload")
    bob.handler("mail", "return payload")
    with following(acme) as reader:
        bob.ended(bob.add("mail", b"bob's")[0])
        (job_id,) = acme.add("mail", b"secret payload")
        told = reader.until("ok")
    events = [one["event"] for one in told]
    assert sorted(events) == ["added", "claimed", "ok"]
    assert events.index("claimed") < events.index("ok"), "an engine that looks just then may claim it before it is told"
    assert {one["id"] for one in told} == {job_id}, "nothing of bob's"
    assert {one["type"] for one in told} == {"mail"}
    assert (told[-1]["state"], told[-1]["code"]) == ("final", "ok")
    assert "payload" not in str(told)


def test_who_comes_back_is_told_what_it_has_missed() -> None:
    tenant, other = site().tenant(), site().tenant()
    with following(tenant) as reader, following(other):
        (first,) = tenant.add("later", b"x", "?dt=2040-01-01T00:00:00Z")
        (event,) = reader.until("added")
        assert (event["id"], event["tenant"]) == (first, tenant.name)
    other.add("later", b"x", "?dt=2040-01-01T00:00:00Z")
    missed = tenant.add("later", b"1\n2\n3\n", "?dt=2040-01-01T00:00:00Z")
    for job_id in missed:
        tenant.job(job_id)  # it is stored, so that is known
    with following(tenant, event["event_id"]) as reader:
        told = [reader.event() for _ in missed]
        assert [one["id"] for one in told] == missed, "in order, each once, and nobody else's"
        (now,) = tenant.add("later", b"x", "?dt=2040-01-01T00:00:00Z")
        assert reader.event()["id"] == now
    with following(tenant, told[-1]["event_id"]) as reader:
        assert reader.event()["id"] == now


@pytest.mark.parametrize("last", ["x", "0-1", "-", "12345678901234567890-3", "1" * 190])
def test_who_comes_back_with_an_id_that_is_not_known_is_told_so(last: str) -> None:
    tenant = site().tenant()
    with following(tenant, last) as reader:
        assert reader.event()["event"] == "missed"
        tenant.add("later", b"x", "?dt=2040-01-01T00:00:00Z")
        assert reader.event()["event"] == "added"


def test_a_reader_whose_token_is_revoked_is_let_go() -> None:
    here = site()
    tenant = here.tenant()
    leaked, text = here.tenants.token(tenant.name)
    with following(tenant) as reader, following(Tenant(tenant.daemon, tenant.name, text)) as thief:
        tenant.add("mail", b"before")
        assert thief.until("added")[-1]["type"] == "mail"
        here.tenants.revoke(tenant.name, leaked.id)
        assert b"secret" not in thief.rest()
        tenant.add("secret", b"x")
        assert [event["type"] for event in reader.until("added") + reader.until("added")][-1] == "secret"


def test_readers_that_leave_are_noticed() -> None:
    tenant, admin = site().tenant(), site().admin()

    def readers() -> int:
        found = re.search(rb"^hipq_http_readers (\d+)", admin("GET", "/metrics").body, flags=re.MULTILINE)
        assert found
        return int(found[1])

    eventually(lambda: readers() == 0)  # those of the test before are noticed a moment later, too
    with following(tenant), following(tenant):
        assert readers() == 2
    eventually(lambda: readers() == 0)
    (job_id,) = tenant.add("mail", b"x", "?dt=2040-01-01T00:00:00Z")
    with tenant.daemon.connect() as link:
        path = f"/v1/{tenant.name}/jobs/{job_id}/result?wait=60"
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.token}\r\n\r\n".encode())
        eventually(lambda: readers() == 1)
        link.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )  # else ten seconds are waited: it may listen
    eventually(lambda: readers() == 0)


def test_a_daemon_that_stops_lets_its_readers_and_those_who_wait_go() -> None:
    here: Site = site()
    daemon: Daemon = here.daemon()
    tenant = here.tenant(daemon)
    (job_id,) = tenant.add("mail", b"x", "?dt=2040-01-01T00:00:00Z")
    with following(tenant) as reader, daemon.connect() as link:
        path = f"/v1/{tenant.name}/jobs/{job_id}/result?wait=60"
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.token}\r\n\r\n".encode())
        admin = Tenant(daemon, "", here.admin().token)
        eventually(lambda: b"hipq_http_readers 2.0" in admin("GET", "/metrics").body)
        assert daemon.stop() == 0
        assert link.recv(65536).startswith(b"HTTP/1.1 202 "), "as it is at the time"
        reader.upto(b"0\r\n\r\n")
    assert "Traceback" not in daemon.log
