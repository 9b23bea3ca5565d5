"""Jobs that filters find, changed together over HTTP: counted first, step by step, for one tenant only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipq.daemon import bulk
from hipq.daemon.bulk import Bulk
from hipq.daemon.daemon import Daemon
from hipq.job.states import FINAL
from tests.daemon.api_serving import Tenant, eventually, site
from tests.daemon.working import add, made, python, row
from tests.engine.conftest import url

__all__ = ["url"]

FAR = "?dt=2040-01-01T00:00:00Z"


def far(tenant: Tenant, jobtype: str, count: int) -> list[str]:
    ids = tenant.add(jobtype, b"x\n" * count, FAR)
    eventually(lambda: tenant("GET", f"/v1/{{}}/jobs/{ids[-1]}").status == 200)
    return ids


def test_many_are_counted_and_then_cancelled() -> None:
    acme, bob = site().tenant(), site().tenant()
    ids, others, theirs = far(acme, "mail", 7), far(acme, "call", 2), far(bob, "mail", 3)
    counted = acme("POST", "/v1/{}/jobs/cancel?type=mail&dry_run=true").json
    assert counted == {"found": 7, "more": False}
    got = acme("POST", "/v1/{}/jobs/cancel?type=mail&count=6")
    assert (got.status, "nothing was changed" in got.error) == (409, True)
    assert {acme.job(one)["state"] for one in ids} == {"initial"}
    got = acme("POST", "/v1/{}/jobs/cancel?type=mail&count=7&reason=no+stamps")
    assert got.json == {"changed": 7, "skipped": 0, "next": None}
    assert {(job["code"], "no stamps" in job["error"]) for job in map(acme.job, ids)} == {("cancelled", True)}
    assert {acme.job(one)["state"] for one in others} == {"initial"}
    assert {bob.job(one)["state"] for one in theirs} == {"initial"}
    entry = site().admin()("GET", "/v1/audit?limit=1").json["entries"][0]
    assert (entry["action"], entry["details"]) == ("jobs cancel", {"type": "mail", "changed": 7, "skipped": 0})


def test_many_run_now_and_many_are_added_again() -> None:
    acme, bob = site().tenant(), site().tenant()
    for tenant in (acme, bob):
        tenant.handler("mail", "return payload")
    ids, theirs = far(acme, "mail", 4), far(bob, "mail", 1)
    assert acme("POST", "/v1/{}/jobs/retry?type=mail&state=initial&count=10").json["changed"] == 4
    for one in ids:
        assert acme.ended(one).body == b"x"
    assert acme("POST", "/v1/{}/jobs/requeue?type=mail&code=ok&dry_run=true").json["found"] == 4
    assert acme("POST", "/v1/{}/jobs/requeue?type=mail&code=ok&count=4").json == {
        "changed": 4, "skipped": 0, "next": None,
    }  # fmt: skip
    eventually(lambda: len(acme("GET", "/v1/{}/results?type=mail&code=ok").json["results"]) == 8)
    assert bob.job(theirs[0])["state"] == "initial"


def test_one_is_added_again() -> None:
    acme = site().tenant()
    acme.handler("mail", "return payload")
    (old,) = acme.add("mail", b"again")
    (waits,) = far(acme, "mail", 1)
    acme.ended(old)
    got = acme("POST", f"/v1/{{}}/jobs/{old}/requeue")
    assert (got.status, acme.ended(got.json["id"]).body) == (201, b"again")
    assert int(got.json["id"]) > int(old)
    assert acme("POST", f"/v1/{{}}/jobs/{waits}/requeue").status == 409


def test_what_is_added_again_counts_for_the_quotas() -> None:
    acme = site().tenant(waiting=3)
    acme.handler("mail", "return payload")
    (old,) = acme.add("mail", b"x")
    acme.ended(old)
    eventually(lambda: acme("POST", f"/{{}}/job/far/add{FAR}", b"1\n2\n3").status == 200)
    assert acme("POST", f"/v1/{{}}/jobs/{old}/requeue").status == 429
    assert acme("POST", "/v1/{}/jobs/requeue?count=10").status == 429


def test_one_that_fails_midway_says_how_far_it_got_and_so_does_the_audit_log() -> None:
    acme, boss = site().tenant(waiting=3 * bulk.STEP), site().admin()
    acme.handler("mail", "return payload")
    ids = acme.add("mail", b"x\n" * (2 * bulk.STEP + 50))
    eventually(lambda: acme("POST", "/v1/{}/jobs/requeue?dry_run=true").json["found"] == len(ids))
    assert acme("DELETE", "/v1/{}/handlers/mail").status == 200  # what is added again stays
    fill = b"x\n" * (2 * bulk.STEP - 50)
    eventually(lambda: acme("POST", f"/{{}}/job/far/add{FAR}", fill).status == 200)
    got = eventually(lambda: (got := acme("POST", "/v1/{}/jobs/requeue?count=1000")).status == 200 and got)
    assert (got.status, got.json["changed"]) == (200, bulk.STEP)

    def entries() -> list[dict[str, Any]]:
        found = boss("GET", "/v1/audit?limit=1000").json["entries"]
        return [one for one in found if one["target"] == f"/v1/{acme.name}/jobs/requeue"]

    (entry,) = entries()
    assert (entry["details"]["changed"], entry["details"]["skipped"]) == (bulk.STEP, 0)
    went_on = acme("POST", f"/v1/{{}}/jobs/requeue?after={got.json['next']}")
    assert (went_on.status, "waiting jobs is used up" in went_on.error) == (429, True)
    assert len(entries()) == 1, "nothing was done"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "say dry_run=true to count the jobs"),
        ("?dry_run=true&count=3", "say dry_run=true to count the jobs"),
        ("?after=7", "after must be `next` of an earlier reply"),
        (f"?after={2**63}-7", "after must be `next` of an earlier reply"),
        (f"?after=7-{2**63}", "after must be `next` of an earlier reply"),
        ("?count=1&after=7-7", "say dry_run=true to count the jobs"),
        ("?state=final&dry_run=true", "there is no state 'final'"),
        ("?tenant=bob&dry_run=true", "there is no 'tenant' in this URL's query"),
    ],
)
def test_what_is_wrong_is_said(query: str, said: str) -> None:
    got = site().tenant()("POST", f"/v1/{{}}/jobs/cancel{query}")
    assert (got.status, said in got.error) == (400, True), got


# -- step by step ----------------------------------------------------------------------------------------------------
@pytest.fixture
def daemon(tmp_path: Path, url: str) -> Iterator[Daemon]:
    found = made(tmp_path, url)
    yield found
    found.close()


def test_steps_find_each_job_once_and_none_that_came_later(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STEP", 3)
    monkeypatch.setattr(bulk, "LOOKED_AT", 5)
    ids = [add(daemon, jobtype, b"x", delay=3600)[0] for _ in range(10) for jobtype in ("mail", "call")][::2]
    daemon.ingest()
    many: Bulk = daemon.bulk
    before = many.now() + 1
    add(daemon, "mail", b"later", delay=3600)
    daemon.ingest()
    found, after, steps = list[int](), 0, 0
    while True:
        step = many.find(many.wanted("acme", "live", before, after, type="mail"))
        found += [one.id for one in step.rows]
        after, steps = step.after, steps + 1
        if not after:
            break
    assert found == ids
    assert steps > 3
    counted, after = 0, 0
    while True:
        some, after = many.count(many.wanted("acme", "live", before, after, type="mail"))
        counted += some
        if not after:
            break
    assert counted == 10


def test_ids_of_jobs_that_are_added_again_are_the_tenants_own(tmp_path: Path, url: str) -> None:
    from tests.daemon.working import daemon as started
    from tests.daemon.working import ended

    with started(tmp_path, url) as daemon:
        python(daemon, "mail", "return payload")
        (first,) = add(daemon, "mail", b"x")
        ended(daemon, first)
        (second,) = daemon.bulk.requeue("acme", [row(daemon, first)])
        assert ended(daemon, second).state == FINAL
        assert row(daemon, second).tenant == "acme"
        (third,) = add(daemon, "mail", b"x")
        assert third - second == second - first, "nothing of it tells what others add"
