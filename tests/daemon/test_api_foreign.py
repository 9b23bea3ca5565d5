"""I14: what is another tenant's does not exist, on every route; nor does anything for who has no token."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

import pytest

from hipq.daemon.http.api import ROUTES
from hipq.daemon.http.routes_table import Route
from hipq.job.model import QUEUE_BITS
from tests.daemon.api_serving import Daemon, Got, Tenant, eventually, site

FAR = "?dt=2040-01-01T00:00:00Z"
UNKNOWN_ID = "4611686083963387905"
NO_TENANT = "nosuchtenant"


@pytest.fixture(scope="module")
def acme() -> Tenant:
    """Has a job, with a key, and a handler."""
    found = site().tenant()
    found.add("mail", b"secret", f"{FAR}&key=k1")
    found.handler("mail", "return 'secret'")
    return found


@pytest.fixture(scope="module")
def bob() -> Tenant:
    return site().tenant()


def path_of(route: Route, **parts: str) -> str:
    usual = {
        "type": "mail", "key": "k1", "version": "0" * 16, "id": UNKNOWN_ID, "token": "0" * 12, "tenant": NO_TENANT,
        "name": "daily", "secret": "BANK", "signing_key": "0" * 12,
    }  # fmt: skip
    return re.sub(r"\{(\w+)\}", lambda match: {**usual, **parts}[match[1]], route.path)


def bare(got: Got) -> tuple[int, dict[str, str], bytes]:
    """Byte for byte, but for the time of day."""
    return got.status, {name: value for name, value in got.headers.items() if name != "date"}, got.body


def body_of(route: Route) -> bytes | None:
    return b'{"type": "mail", "lang": "python", "body": "return 1"}' if route.accepts else None


TENANT_ROUTES = [route for route in ROUTES if route.who == "tenant"]
ID_ROUTES = [route for route in TENANT_ROUTES if "{id}" in route.path]


@pytest.mark.parametrize("route", TENANT_ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_another_tenants_path_is_that_of_one_who_does_not_exist(route: Route, acme: Tenant, bob: Tenant) -> None:
    job_id = acme("GET", "/v1/{}/jobs?type=mail").json["jobs"][0]["id"]
    version = acme("GET", "/v1/{}/handlers/mail").json["id"]
    foreign = bob(route.method, path_of(route, client=acme.name, id=job_id, version=version), body_of(route))
    nobody = bob(route.method, path_of(route, client=NO_TENANT), body_of(route))
    assert foreign.status == 404
    assert bare(foreign) == bare(nobody)
    assert b"secret" not in foreign.body


@pytest.mark.parametrize(
    "route",
    [route for route in TENANT_ROUTES if "{id}" in route.path],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_another_tenants_id_is_one_that_does_not_exist(route: Route, acme: Tenant, bob: Tenant) -> None:
    job_id = acme("GET", "/v1/{}/jobs?type=mail").json["jobs"][0]["id"]
    before = acme.job(job_id)
    foreign = bob(route.method, path_of(route, client=bob.name, id=job_id))
    unknown = bob(route.method, path_of(route, client=bob.name, id=UNKNOWN_ID))
    assert foreign.status == 404
    assert bare(foreign) == bare(unknown)
    assert acme.job(job_id) == before


def has_read(daemon: Daemon) -> int:
    """Bytes, since it was started."""
    return int(Path(f"/proc/{daemon.process.pid}/io").read_text().split()[1])


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="what a process reads is not counted here")
@pytest.mark.parametrize("suffix", ["", "/result", "/why"])
def test_another_tenants_job_costs_no_more_than_one_that_does_not_exist(acme: Tenant, bob: Tenant, suffix: str) -> None:
    size, times = 8_000_000, 5
    (job_id,) = acme.add("mail", b"x" * size, FAR)
    eventually(lambda: acme("GET", f"/v1/{{}}/jobs/{job_id}").status == 200)
    before = has_read(bob.daemon)
    for _ in range(times):
        assert bob("GET", f"/v1/{{}}/jobs/{job_id}{suffix}").status == 404
    assert has_read(bob.daemon) - before < size, "it was read, which takes time that tells of it"


def test_another_tenants_jobs_handlers_and_keys_are_in_no_list(acme: Tenant, bob: Tenant) -> None:
    for path in ("/v1/{}/jobs", "/v1/{}/jobs?key=k1", "/v1/{}/results", "/v1/{}/handlers", "/v1/{}/queues"):
        (found,) = [value for value in bob("GET", path).json.values() if isinstance(value, list)]
        assert found == []
    assert bob("GET", "/{}/handler/get/mail").status == 404
    assert bob("DELETE", "/{}/handler/del/mail").status == 404
    assert acme("GET", "/{}/handler/get/mail").status == 200


def test_a_key_is_taken_for_its_own_tenant_only(acme: Tenant, bob: Tenant) -> None:
    assert acme("POST", f"/{{}}/job/mail/add{FAR}&key=k1", b"x").status == 409
    (job_id,) = bob.add("mail", b"x", f"{FAR}&key=k1")
    assert bob.job(job_id)["key"] == "k1"
    bob("POST", f"/v1/{{}}/jobs/{job_id}/cancel")


def test_an_answer_reaches_its_own_tenants_job_only(acme: Tenant, bob: Tenant) -> None:
    bob("POST", "/v1/{}/answers/mail/k1", b"from bob", idempotency_key="one")
    got = acme("POST", "/v1/{}/answers/mail/k1", b"from acme", idempotency_key="one")
    assert got.json == {"answer": "buffered"}, "bob's with the same id is another"


def test_an_idempotency_key_is_its_own_tenants(acme: Tenant, bob: Tenant) -> None:
    mine = acme.add("mail", b"x", FAR, idempotency_key="same")
    assert bob.add("mail", b"y", FAR, idempotency_key="same") != mine


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_without_a_token_there_are_health_and_docs_only(route: Route, acme: Tenant) -> None:
    job_id = acme("GET", "/v1/{}/jobs?type=mail").json["jobs"][0]["id"]
    path = path_of(route, client=acme.name, id=job_id)
    got = acme.daemon.call(route.method, path, body_of(route))
    if route.path == "/health":
        assert (got.status, got.json) == (200, {"status": "ok"})
        return
    if route.path == "/ready":  # a balancer has no token
        assert (got.status, set(got.json)) == (200, {"accepts", "stores", "runs", "reasons"})
        return
    if route.path in ("/docs", "/openapi.json"):  # which have a place to enter a token, and nothing of anybody's
        assert got.status == 200
        assert acme.name.encode() not in got.body
        return
    assert got.status == 401
    assert got.headers["www-authenticate"] == "Bearer"
    assert got.error
    for said in ("Bearer", "Bearer ", "Bearer x", f"Basic {acme.token}", acme.token, f"Bearer {acme.token}x"):
        again = acme.daemon.call(route.method, path, body_of(route), authorization=said)
        assert bare(again) == bare(got)
        if said == "Bearer x" and "{id}" not in route.path:
            break  # tokens that are none cost a fifth of a second each


@pytest.mark.parametrize("how", ["plain", "with a key", "at a time", "once", "chained"])
def test_ids_do_not_tell_how_many_jobs_another_tenant_has(how: str, bob: Tenant) -> None:
    mine = site().tenant()
    for one in (mine, bob):
        one.handler("gather", "return payload")
        one.handler("spawn", "print('J: gather|' + payload)\nreturn payload")

    def add(one: Tenant, name: str) -> int:
        if how == "chained":
            (job_id,) = one.add("spawn", name.encode())
            one.ended(job_id)
            return max(int(job["id"]) for job in one("GET", "/v1/{}/jobs?type=gather&limit=1000").json["jobs"])
        query = {"with a key": f"?key={name}", "at a time": FAR}.get(how, "")
        headers = {"idempotency_key": name} if how == "once" else {}
        return int(one.add("gather", b"x", query, **headers)[0])

    found = []
    for n, others in enumerate((0, 1, 5, 20)):
        found.append(add(mine, f"{how} {n}".replace(" ", "-")))
        for k in range(others):
            add(bob, f"{how} {n} {k}".replace(" ", "-"))
    found.append(add(mine, f"{how} last".replace(" ", "-")))
    step = 2 if how == "chained" else 1  # one for each of its own jobs
    assert {after - before for before, after in pairwise(found)} == {step << QUEUE_BITS}
