"""Tokens and quotas at a daemon that runs: made, revoked and changed elsewhere; secrets are in no log."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.daemon.api_serving import Daemon, Site, Tenant, eventually, site

FAR = "?dt=2040-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def here() -> Site:
    return site()


def test_a_token_is_good_at_once_and_for_a_second_after_it_was_revoked(here: Site) -> None:
    tenant = here.tenant()
    assert tenant("GET", "/v1/{}/jobs").status == 200, "it was made a moment ago"
    (token,) = here.tenants.get(tenant.name).tokens
    _, other = here.tenants.token(tenant.name)
    here.tenants.revoke(tenant.name, token.id)
    got = eventually(lambda: (found := tenant("GET", "/v1/{}/jobs")).status == 401 and found, 20)
    assert "token" in got.error
    for path in ("/v1/{}/jobs", "/{}/handler/get/x", "/v1/whoami"):
        assert tenant("GET", path).status == 401
    assert Tenant(tenant.daemon, tenant.name, other)("GET", "/v1/{}/jobs").status == 200


def test_who_waits_for_a_result_is_not_told_it_once_the_token_is_revoked(here: Site) -> None:
    tenant = here.tenant()
    leaked, text = here.tenants.token(tenant.name)
    thief = Tenant(tenant.daemon, tenant.name, text)
    tenant.handler("mail", "return 'canary'")
    (job_id,) = tenant.add("mail", b"x", FAR)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(thief, "GET", f"/v1/{{}}/jobs/{job_id}/result?wait=60")
        time.sleep(0.5)
        here.tenants.revoke(tenant.name, leaked.id)
        eventually(lambda: thief("GET", "/v1/{}/jobs").status == 401, 20)
        assert tenant("POST", f"/v1/{{}}/jobs/{job_id}/retry").status == 200
        got = waiting.result()
    assert (got.status, b"canary" in got.body) == (401, False)
    assert tenant.ended(job_id).body == b"canary"


SLOWLY = [
    ("PUT", "/v1/{}/handlers/x", b'{"lang": "python", "body": "return 1"}'),
    ("POST", "/v1/{}/jobs", b'{"type": "slow", "data": "posted too late"}'), ("POST", "/{}/job/slow/add", b"x" * 40),
    ("PUT", "/v1/{}/secrets/LATE", b"it comes too late"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body"), SLOWLY, ids=[path for _, path, _ in SLOWLY])
def test_a_body_that_comes_slowly_outlives_no_token(here: Site, method: str, path: str, body: bytes) -> None:
    """Else whoever has the token of somebody who left keeps a foot in the door: a body may take half a minute."""
    tenant = here.tenant()
    until = here._store.now() + 2_000_000
    _, short = here.tenants.token(tenant.name, expires=until)
    head = f"{method} {path.format(tenant.name)} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    if path.endswith("add"):
        head = head.replace("application/json", "text/plain")
    with tenant.daemon.connect() as link:
        link.sendall(f"{head}authorization: Bearer {short}\r\ncontent-length: {len(body)}\r\n\r\n".encode())
        link.sendall(body[:-1])
        eventually(lambda: here._store.now() > until)
        link.sendall(body[-1:])
        assert link.recv(65536).startswith(b"HTTP/1.1 401 ")
    assert tenant("GET", "/v1/{}/handlers").json == {"handlers": []}
    assert tenant("GET", "/v1/{}/jobs").json["jobs"] == []


@pytest.mark.parametrize("way", ["/v1/{}/events", "/v1/{}/jobs/{id}/output"])
def test_who_follows_something_is_told_no_more_once_the_token_has_expired(here: Site, way: str) -> None:
    tenant = here.tenant()
    tenant.handler("talks", "import time\nfor n in range(40):\n    print(n, flush=True)\n    time.sleep(0.5)")
    (job_id,) = tenant.add("talks", b"x")
    until = here._store.now() + 3_000_000
    reader = Tenant(tenant.daemon, tenant.name, here.tenants.token(tenant.name, roles=["read"], expires=until)[1])
    began = time.monotonic()
    got = reader("GET", way.replace("{id}", job_id))  # which returns when that has ended
    assert got.status == 200
    assert time.monotonic() - began < 15, "the job goes on for twenty seconds"
    assert here._store.now() >= until
    tenant("POST", f"/v1/{{}}/jobs/{job_id}/cancel")


@pytest.mark.parametrize("path", ["/{}/job/mail/add" + FAR, "/{}/job/mail/add", "/v1/{}/jobs"])
def test_two_tokens_are_refused(here: Site, path: str) -> None:
    """A proxy may have looked at the first, and we at the last."""
    tenant, other = here.tenant(), here.tenant()
    head = f"POST {path.format(tenant.name)} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1\r\n"
    one, two = (f"authorization: Bearer {token}\r\n" for token in (tenant.token, other.token))
    for lines in (one + two, two + one, one + one):
        said = tenant.daemon.raw(f"{head}{lines}\r\nx".encode())
        assert b" 400 " in said.partition(b"\r\n")[0], said
        assert b"one Authorization header" in said


@pytest.mark.parametrize("path", ["/{}/job/mail/add" + FAR, "/{}/job/mail/add", "/v1/{}/jobs"])
def test_a_token_behind_the_body_is_none(here: Site, path: str) -> None:
    """A proxy that checks or takes away tokens looks at the head only."""
    tenant = here.tenant()
    head = f"POST {path.format(tenant.name)} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
    token, body = f"authorization: Bearer {tenant.token}\r\n", '10\r\n{"type": "mail"}\r\n0\r\n'
    assert b" 401 " in tenant.daemon.raw(f"{head}\r\n{body}{token}\r\n".encode()).partition(b"\r\n")[0]
    assert b" 20" in tenant.daemon.raw(f"{head}{token}\r\n{body}{token}\r\n".encode()).partition(b"\r\n")[0]


def test_a_removed_tenants_token_is_good_for_nothing(here: Site) -> None:
    tenant = here.tenant()
    tenant.add("mail", b"x", FAR)
    here.tenants.remove(tenant.name)
    eventually(lambda: tenant("POST", "/{}/job/mail/add", b"x").status == 401, 20)


def test_a_full_tenant_is_told_when_to_try_again_and_others_go_on(here: Site) -> None:
    small, other = here.tenant(waiting=5), here.tenant()
    small.add("mail", b"1\n2\n3", FAR)
    # What comes while the store is counted may for a moment be counted twice.
    eventually(lambda: small("POST", "/v1/{}/jobs", {"type": "mail", "at": 2_200_000_000}).status == 201)
    got = small("POST", f"/{{}}/job/mail/add{FAR}", b"5\n6")
    assert got.status == 429
    assert int(got.headers["retry-after"]) >= 1
    assert "quota of 5 waiting jobs" in got.error
    eventually(lambda: small("POST", f"/{{}}/job/mail/add{FAR}", b"5").status == 200)
    assert small("POST", f"/{{}}/job/mail/add{FAR}", b"6", idempotency_key="k").status == 429
    assert small("POST", f"/{{}}/job/mail/add{FAR}&key=k", b"6").status == 429
    got = small("POST", f"/{{}}/job/mail/add{FAR}", b"x\n" * 6)
    assert (got.status, "this request has 6 jobs" in got.error) == (413, True)
    other.add("mail", b"1\n2\n3\n4\n5\n6", FAR)
    for job in small("GET", "/v1/{}/jobs").json["jobs"]:
        small("POST", f"/v1/{{}}/jobs/{job['id']}/cancel")
    eventually(lambda: small("POST", f"/{{}}/job/mail/add{FAR}", b"7").status == 200)


def test_a_tenants_bytes_are_bounded(here: Site) -> None:
    tenant = here.tenant(bytes=1000)
    tenant.add("mail", b"x" * 600, FAR)
    got = tenant("POST", f"/{{}}/job/mail/add{FAR}", b"x" * 600)
    assert (got.status, "bytes" in got.error) == (429, True)


def test_a_tenants_rate_is_bounded_and_can_be_changed_while_the_daemon_runs(here: Site) -> None:
    tenant = here.tenant(rate=1)
    tenant.add("mail", b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20", FAR)
    got = tenant("POST", f"/{{}}/job/mail/add{FAR}", b"21")
    assert got.status == 429
    assert int(got.headers["retry-after"]) > 5
    here.tenants.set(tenant.name, rate=0)
    eventually(lambda: tenant("POST", f"/{{}}/job/mail/add{FAR}", b"21").status == 200)


def test_no_secret_is_in_anything_a_daemon_writes(tmp_path: Path) -> None:
    """A canary in every place where one could be: all that comes out is searched for it."""
    place = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    daemon: Daemon = place.daemon("--log-level", "debug", "--job-log", str(tmp_path / "jobs.jsonl"))
    tenant = place.tenant()
    bad = "hipq_canaryCANARYcanaryCANARYcanaryCANARYcanaryCAN"
    tenant.handler("mail", "raise ValueError('oh')")
    tenant.add("mail", b"canary-payload")
    tenant.add("mail", b"canary-payload", idempotency_key="canary-key")
    tenant("GET", f"/v1/{{}}/jobs?typo={tenant.token}")
    tenant("GET", f"/v1/{{}}/{tenant.token}")
    tenant("POST", "/v1/{}/answers/mail/k", b"canary-payload")
    tenant("POST", "/v1/{}/jobs", b'{"canary-payload": ')
    tenant("GET", "/v1/{}/jobs/%1b%5b31mred%0aline")
    for said in (f"Bearer {bad}", f"Basic {bad}", f"Bearer {tenant.token} {bad}", bad):
        daemon.call("GET", f"/v1/{tenant.name}/jobs", authorization=said)
        daemon.call("POST", f"/{tenant.name}/job/mail/add", b"x", authorization=said)
    daemon.raw(f"GET / HTTP/1.1\r\nAuthorization: Bearer {tenant.token}\r\nbad header\r\n\r\n".encode())
    eventually(lambda: [job for job in tenant("GET", "/v1/{}/jobs").json["jobs"] if job["failures"]])
    assert daemon.stop() == 0
    kept = "".join(path.read_text() for path in tmp_path.glob("*.jsonl"))
    written = daemon.log + kept
    assert "status=401" in written
    assert "status=200" in written
    for secret in (tenant.token, tenant.token.removeprefix("hipq_"), bad, "canary-payload", "canary-key"):
        assert secret not in written
    assert not re.search(r"[0-9a-f]{64}", written), "nor is a hash"
    assert all(line.isprintable() for line in written.splitlines())
    place.close()
