"""Whatever a tenant can make grow counts for its quotas: answers nobody waits for, results, and how often it asks."""

from __future__ import annotations

import time

import pytest

from tests.daemon.api_serving import Got, Site, Tenant, eventually, site

pytestmark = pytest.mark.every_store

BIG = 100_000


@pytest.fixture
def here(store_kind: str) -> Site:
    return site(store_kind)


def answer(tenant: Tenant, key: str, body: bytes, jobtype: str = "ask") -> Got:
    return tenant("POST", f"/v1/{{}}/answers/{jobtype}/{key}", body)


def test_answers_that_no_job_waits_for_count_like_jobs(here: Site) -> None:
    few, small = here.tenant(waiting=3), here.tenant(bytes=3 * BIG)
    for tenant in (few, small):
        got = [answer(tenant, f"key{n}", b"x" * BIG) for n in range(10)]
        assert {one.status for one in got} == {202, 429}
        assert int(got[-1].headers["retry-after"]) >= 1
        assert "quota" in got[-1].error
        for n in range(4):  # while they are counted in the database, where they are still
            time.sleep(0.5)
            got.append(answer(tenant, f"another{n}", b"x" * BIG))
        assert 2 <= sum(one.status == 202 for one in got) <= 3, "one that is counted twice for a moment may be refused"
        assert tenant("POST", "/{}/job/any/add", b"x" * BIG).status == 429, "one quota for both"
    assert answer(small, "large", b"x" * (4 * BIG)).status == 413
    assert answer(here.tenant(), "key", b"x" * BIG).status == 202


def test_answers_count_for_the_rate(here: Site) -> None:
    tenant = here.tenant(rate=1)
    began = time.monotonic()
    got = [answer(tenant, f"key{n}", b"x").status for n in range(20)]
    assert set(got) == {202, 429}
    assert got.count(202) <= 2 + time.monotonic() - began


def test_an_answer_that_a_job_waits_for_comes_where_nothing_can_be_added(here: Site) -> None:
    tenant = here.tenant(waiting=1)
    tenant.handler("ask", "return 202, ''", waits=True)
    (job_id,) = tenant.add("ask", b"x", "?key=one")
    eventually(lambda: tenant.job(job_id)["phase"] == "waiting")
    eventually(lambda: answer(tenant, "another", b"x").status == 429)
    assert answer(tenant, "one", b"the answer").status == 200
    assert tenant.ended(job_id).body == b"the answer"


def test_results_are_kept_as_long_as_there_is_room(here: Site) -> None:
    tenant = here.tenant(kept=3 * BIG)
    tenant.handler("fat", f"return 'x' * {BIG}")
    tenant.handler("fatter", f"return 'x' * {4 * BIG}")
    (huge,) = tenant.add("fatter", b"x")
    eventually(lambda: tenant.job(huge)["state"] == "final")
    assert (tenant.job(huge)["code"], tenant.job(huge)["exitcode"]) == ("failed", 413)
    ids = tenant.add("fat", b"x\n" * 10)
    eventually(lambda: sum(tenant.job(job_id)["state"] == "final" for job_id in ids) == 2)
    failed = [job for job in map(tenant.job, ids) if job["state"] != "final"]
    eventually(lambda: all(tenant.job(job["id"])["failures"] for job in failed))
    assert "its result was not kept" in str(tenant.job(failed[0]["id"])["error"])
    assert sum(tenant.job(job_id)["code"] == "ok" for job_id in ids) == 2


def test_nothing_is_added_while_what_has_ended_takes_too_much(here: Site) -> None:
    tenant = here.tenant(kept=3 * BIG)
    tenant.handler("plain", "return 404, 'it failed, and is kept with what it was given'")
    for _ in range(4):
        got = tenant("POST", "/{}/job/plain/add", b"x" * BIG)
        if got.status == 200:
            tenant.ended(got.json["ids"][0])
    eventually(lambda: tenant("POST", "/{}/job/plain/add", b"x").status == 429)
    assert "ended jobs" in tenant("POST", "/{}/job/plain/add", b"x").error
    assert tenant("GET", "/v1/{}/jobs").status == 200


def test_handlers_take_no_more_than_a_tenant_may_keep(here: Site) -> None:
    tenant = here.tenant(kept=BIG)
    source = b"# " + b"x" * (BIG // 3)
    got = [tenant("POST", f"/{{}}/handler/add/h{n}?method=python", source, content_type="text/plain") for n in range(4)]
    assert [one.status for one in got] == [200, 200, 409, 409]
    assert f"{BIG:,} bytes" in got[-1].error


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/{}/jobs"),
        ("GET", "/v1/{}/jobs/1"),
        ("GET", "/v1/{}/queues"),
        ("GET", "/v1/{}/results"),
        ("PUT", "/v1/{}/handlers/x"),
        ("POST", "/v1/{}/jobs/1/cancel"),
    ],
)
def test_other_requests_have_a_rate_of_their_own(here: Site, method: str, path: str) -> None:
    tenant, other = here.tenant(requests=1), here.tenant()
    body = {"lang": "shell", "body": "echo"} if method == "PUT" else None
    began = time.monotonic()
    got = [tenant(method, path, body) for _ in range(20)]
    assert 1 <= sum(one.status != 429 for one in got) <= 2 + time.monotonic() - began
    assert "requests a second" in next(one for one in got if one.status == 429).error
    assert tenant("POST", "/{}/job/any/add", b"x").status == 200, "what is added has its own"
    assert all(other(method, path, body).status != 429 for _ in range(20))
