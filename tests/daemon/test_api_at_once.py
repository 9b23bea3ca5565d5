"""Jobs that are added at once, on a connection that stays: the same head again and again is believed only while it is
true."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.api_serving import Site, Tenant, eventually, site


class Line:
    """A connection that is kept."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._connection = http.client.HTTPConnection("127.0.0.1", tenant.daemon.port, timeout=60)

    def add(self, body: bytes, jobtype: str = "work", tenant: str = "", **headers: str) -> tuple[int, Any]:
        sent = {"authorization": f"Bearer {self._tenant.token}", "content-type": "text/plain"} | headers
        self._connection.request("POST", f"/{tenant or self._tenant.name}/job/{jobtype}/add", body, sent)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def tenant() -> Tenant:
    return site().tenant()


@pytest.fixture
def line(tenant: Tenant) -> Iterator[Line]:
    with closing(Line(tenant)) as found:
        found.add(b"first")  # from here on its token is known
        yield found


def test_each_gets_the_ids_of_its_own(tenant: Tenant) -> None:
    def some(name: str) -> list[tuple[str, str]]:
        with closing(Line(tenant)) as mine:
            found: list[tuple[str, str]] = []
            for number in range(40):
                sent = [f"{name}-{number}-{n}" for n in range(number % 3 + 1)]
                status, said = mine.add("\n".join(sent).encode(), jobtype=f"type{number % 2}")
                assert status == 200
                assert len(said["ids"]) == len(sent)
                found += zip(said["ids"], sent, strict=True)
            return found

    with ThreadPoolExecutor(8) as pool:
        found = [pair for some in pool.map(some, "abcdefgh") for pair in some]
    assert len({job_id for job_id, _ in found}) == len(found)
    eventually(lambda: tenant("GET", f"/v1/{{}}/jobs/{found[-1][0]}").status == 200)
    for job_id, payload in found[:: len(found) // 50]:
        assert tenant.job(job_id)["payload"] == payload


def test_a_token_that_is_revoked_is_not_believed_any_longer(tenant: Tenant, line: Line) -> None:
    assert line.add(b"again")[0] == 200
    (token,) = site().tenants.get(tenant.name).tokens
    site().tenants.revoke(tenant.name, token.id)
    eventually(lambda: line.add(b"again")[0] == 401)
    assert [line.add(b"again")[0] for _ in range(3)] == [401] * 3


def test_a_tenant_that_is_removed_adds_nothing(tenant: Tenant, line: Line) -> None:
    site().tenants.remove(tenant.name)
    eventually(lambda: line.add(b"again")[0] == 401)


def test_another_tenants_lane_does_not_exist(line: Line) -> None:
    other = site().tenant()
    for _ in range(3):
        assert line.add(b"mine")[0] == 200
        assert line.add(b"mine", tenant=other.name) == (404, {"error": "there is nothing here"})


@pytest.mark.parametrize(
    ("body", "jobtype", "headers", "status"),
    [
        (b"", "work", {}, 400),
        (b"x", "..", {}, 400),
        (b"[1,", "work", {"content-type": "application/json"}, 400),
        (b"5\nabc\n", "work", {"content-type": "application/octet-stream"}, 400),
        (b"x", "work", {"content-type": "multipart/form-data"}, 415),
        (b"x", "work", {"content-encoding": "gzip"}, 415),
    ],
)
def test_what_is_wrong_is_said_each_time(
    line: Line, body: bytes, jobtype: str, headers: dict[str, str], status: int
) -> None:
    for _ in range(3):
        found, said = line.add(body, jobtype, **headers)
        assert found == status
        assert set(said) == {"error"}
    assert line.add(b"fine")[0] == 200


def test_a_quota_holds() -> None:
    limited = site().tenant(waiting=5)
    with closing(Line(limited)) as mine:
        found = [mine.add(b"a job", "nobody-runs-this") for _ in range(8)]
    assert [status for status, _ in found] == [200] * 5 + [429] * 3
    assert "quota of 5 waiting jobs" in found[-1][1]["error"]


def test_they_are_counted(tenant: Tenant, line: Line) -> None:
    for _ in range(4):
        line.add(b"four\njobs\nto be\ncounted")
    page = site().admin()("GET", "/metrics").body.decode()
    assert f'hipq_jobs_accepted_total{{tenant="{tenant.name}"}} 17.0' in page
    assert f'hipq_job_bytes_accepted_total{{tenant="{tenant.name}"}} {4 * 20 + 5}.0' in page
    assert 'hipq_http_requests_total{route="/{client}/job/{type}/add",status="200"}' in page


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    """Posts on eight connections share batches of the journal; the daemon is killed in the midst of them."""
    place = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    journal = ("--journal", str(tmp_path / "the.journal"))
    acknowledged: dict[str, str] = {}
    try:
        daemon = place.daemon(*journal)
        tenant = place.tenant()
        with ThreadPoolExecutor(8) as pool:
            posting = [pool.submit(_post_until_it_dies, tenant, str(n), acknowledged) for n in range(8)]
            eventually(lambda: len(acknowledged) > 300)
            daemon.kill()
            assert sum(one.result(60) for one in posting) > 300
        tenant.daemon = place.daemon(*journal)
        eventually(lambda: set(acknowledged) <= _stored(tenant))
        for job_id, payload in list(acknowledged.items())[-20:]:
            assert tenant.job(job_id)["payload"] == payload
    finally:
        place.close()


def _stored(tenant: Tenant) -> set[str]:
    found: set[str] = set()
    after = ""
    while some := tenant("GET", f"/v1/{{}}/jobs?limit=1000{after}").json["jobs"]:
        found |= {job["id"] for job in some}
        after = f"&after={some[-1]['id']}"
    return found


def _post_until_it_dies(tenant: Tenant, name: str, acknowledged: dict[str, str]) -> int:
    with closing(Line(tenant)) as mine:
        number = 0
        try:
            while True:
                payload = f"{name}-{number}"
                status, said = mine.add(payload.encode(), "nobody-runs-this")
                assert status == 200, said
                acknowledged[said["ids"][0]] = payload
                number += 1
        except (OSError, http.client.HTTPException):
            return number
