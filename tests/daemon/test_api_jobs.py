"""/v1: jobs are added, looked at, cancelled and retried; their results are waited for; answers are brought."""

from __future__ import annotations

import threading
import time
from base64 import b64encode
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from hipq.daemon.http.add import Wanted, grouped
from hipq.daemon.job_factory import PLAIN
from tests.daemon.api_serving import Tenant, eventually, site

FAR = "2040-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def acme(store_kind: str) -> Tenant:
    return site(store_kind).tenant()


@pytest.fixture(scope="module")
def bob() -> Tenant:
    return site().tenant()


def added(tenant: Tenant, body: Any) -> list[str]:
    got = tenant("POST", "/v1/{}/jobs", body)
    assert got.status == 201, got
    return list(got.json["ids"])


# -- POST /v1/{client}/jobs ------------------------------------------------------------------------------------------
def test_a_job_is_added_with_all_that_can_be_said_of_it(acme: Tenant) -> None:
    (job_id,) = added(acme, {"type": "mail", "data": {"to": "é", "n": [1]}, "key": "k/1", "at": FAR, "priority": 3,
                         "timeout": 60, "then": "log"})  # fmt: skip
    job = acme.job(job_id)
    assert job["payload"] == '{"to":"é","n":[1]}'
    assert (job["type"], job["key"], job["priority"], job["timeout"]) == ("mail", "k/1", 3, 60)
    assert datetime.fromisoformat(job["at"]) == datetime.fromisoformat(FAR)
    assert (job["state"], job["phase"], job["code"], job["error"]) == ("initial", "scheduled", None, "NONE")


def test_a_job_with_windows_starts_in_one_of_them(acme: Tenant) -> None:
    night = {"start": "22:00", "end": "05:00", "tz": "Europe/Rome"}
    (job_id,) = added(acme, {"type": "mail", "at": FAR, "priority": -(1 << 31), "windows": [night]})
    job = acme.job(job_id)
    assert (job["time_windows"], job["lane"], job["tenant"]) == ([night], f"{acme.name}/mail", acme.name)
    assert job["priority"] == -(1 << 31)
    opens = datetime.fromisoformat(job["at"]).astimezone(ZoneInfo("Europe/Rome"))
    assert opens >= datetime.fromisoformat(FAR)
    assert not 5 <= opens.hour < 22
    (plain,) = added(acme, {"type": "mail", "at": FAR})
    assert acme.job(plain)["time_windows"] == []


def test_what_a_job_carries_is_json_text_or_bytes(acme: Tenant) -> None:
    jobs: list[dict[str, Any]] = [
        {"data": None}, {"data": "text"}, {"payload": "a\nb"}, {"payload_base64": b64encode(b"\xff\n").decode()}, {},
    ]  # fmt: skip
    ids = added(acme, [{"type": "mail", "at": FAR, **job} for job in jobs])
    found = [acme.job(job_id) for job_id in ids]
    assert [job.get("payload") for job in found] == ["null", '"text"', "a\nb", None, ""]
    assert found[3]["payload_base64"] == "/wo="


def test_the_jobs_of_a_long_array_are_put_together_in_no_time() -> None:
    """On the event loop, where everybody waits for it: 40,000 took eight seconds, and twice as many four times that."""
    jobs = [Wanted("mail", PLAIN, [b"%d" % n]) for n in range(60_000)]
    began = time.monotonic()
    (found,) = grouped(jobs)
    assert time.monotonic() - began < 3
    assert found.payloads == [b"%d" % n for n in range(60_000)]
    assert jobs[0].payloads == [b"0"], "what was given is as it was"


def test_an_array_may_have_jobs_of_any_type_and_the_ids_come_in_its_order(acme: Tenant) -> None:
    body = [{"type": f"t{n % 3}", "payload": str(n), "at": FAR, "priority": n % 2} for n in range(9)]
    body[4]["key"] = "x"
    found = [acme.job(job_id) for job_id in added(acme, body)]
    assert [(job["type"], job["payload"], job["priority"]) for job in found] == [
        (f"t{n % 3}", str(n), n % 2) for n in range(9)
    ]


def test_a_delay_counts_from_now(acme: Tenant) -> None:
    (job_id,) = added(acme, {"type": "mail", "delay": 3600})
    job = acme.job(job_id)
    ahead = datetime.fromisoformat(job["at"]) - datetime.fromisoformat(job["created"])
    assert ahead.total_seconds() == pytest.approx(3600, abs=5)


def test_a_live_key_is_there_once(acme: Tenant) -> None:
    (first,) = added(acme, {"type": "mail", "key": "twice", "at": FAR})
    got = acme("POST", "/v1/{}/jobs", {"type": "mail", "key": "twice"})
    assert (got.status, got.json["id"]) == (409, first)
    assert acme("POST", "/v1/{}/jobs", {"type": "letter", "key": "twice", "at": FAR}).status == 201


def test_if_some_of_an_array_cannot_be_added_the_reply_has_the_ids_of_those_that_were(acme: Tenant) -> None:
    added(acme, {"type": "mail", "key": "taken", "at": FAR})
    got = acme("POST", "/v1/{}/jobs", [{"type": "mail", "at": FAR}, {"type": "mail", "key": "taken"}, {"type": "mail"}])
    assert got.status == 409
    assert len(got.json["ids"]) == 1
    assert acme.job(got.json["ids"][0])["phase"] == "scheduled"


@pytest.mark.parametrize(
    "body",
    [
        5, "text", None, [], [5], {}, {"type": ""}, {"type": 5}, {"type": "a/b"}, {"type": "é"}, {"type": "x" * 201},
        {"type": "a", "typo": 1}, {"type": "a", "priority": -(1 << 31) - 1}, {"type": "a", "priority": 1 << 62},
        {"type": "a", "priority": 1.5}, {"type": "a", "windows": 5},
        {"type": "a", "windows": [{"start": "1", "end": "2"}]},
        {"type": "a", "windows": [{"start": "22:00", "end": "05:00", "tz": "Nowhere"}]}, {"type": "a", "windows": [{}]},
        {"type": "a", "priority": "5"}, {"type": "a", "delay": -1},
        {"type": "a", "delay": 1e300}, {"type": "a", "timeout": -5}, {"type": "a", "timeout": 1e18},
        {"type": "a", "at": "soon"}, {"type": "a", "at": "2027-01-01T00:00:00"}, {"type": "a", "at": -1},
        {"type": "a", "at": 1e300}, {"type": "a", "at": True}, {"type": "a", "at": FAR, "delay": 5},
        {"type": "a", "key": "a\x00b"}, {"type": "a", "key": "\x1b[31m"}, {"type": "a", "key": "k" * 501},
        {"type": "a", "key": 5}, {"type": "a", "data": 1, "payload": "x"}, {"type": "a", "payload_base64": "!"},
        {"type": "a", "payload_base64": "YQ"}, {"type": "a", "payload": 5}, {"type": "a", "then": "a/b"},
        [{"type": "a"}, {"type": "a/b"}], {"type": "a", "key": "‮abc"},
    ],
    ids=lambda body: repr(body)[:50],
)  # fmt: skip
def test_what_is_no_job_is_refused_and_nothing_is_added(bob: Tenant, body: Any) -> None:
    got = bob("POST", "/v1/{}/jobs", body)
    assert got.status == 400, got
    assert got.error
    assert bob("GET", "/v1/{}/jobs").json["jobs"] == []


@pytest.mark.parametrize(
    "text", [b"", b" ", b"{", b'{"type": "a", "type": "b"}', b'{"type": "a", "delay": NaN}', b"\xff\xfe{\x00}\x00",
             b'{"type": "a", "data": 1e999}', b'{"type": "a", "data": ' + b"[" * 100_000, b'{"type": "\\ud800"}',
             b'{"type": "a", "data": 9223372036854775808}', b'{"type": "a", "priority": 1' + b"0" * 5000 + b"}"],
    ids=lambda text: repr(text)[:40],
)  # fmt: skip
def test_what_is_no_json_is_refused(bob: Tenant, text: bytes) -> None:
    got = bob("POST", "/v1/{}/jobs", text, content_type="application/json")
    assert got.status == 400, got
    assert got.error


# -- GET /v1/{client}/jobs -------------------------------------------------------------------------------------------
def test_jobs_are_listed_page_by_page_and_by_what_they_are(acme: Tenant) -> None:
    ids = added(acme, [{"type": "listed", "at": FAR, "payload": str(n)} for n in range(5)])
    acme.job(ids[-1])  # a list does not wait for what is in the journal still
    first = acme("GET", "/v1/{}/jobs?type=listed&limit=2").json
    assert [job["id"] for job in first["jobs"]] == ids[:2]
    assert "payload" not in first["jobs"][0]
    second = acme("GET", f"/v1/{{}}/jobs?type=listed&limit=3&after={first['next']}").json
    assert [job["id"] for job in second["jobs"]] == ids[2:]
    assert acme("GET", f"/v1/{{}}/jobs?type=listed&after={second['next']}").json == {"jobs": [], "next": None}
    assert acme("GET", "/v1/{}/jobs?type=listed&state=final").json["jobs"] == []
    assert len(acme("GET", "/v1/{}/jobs?type=listed&phase=scheduled&state=initial").json["jobs"]) == 5
    assert [job["id"] for job in acme("GET", f"/v1/{{}}/jobs?key={ids[3]}").json["jobs"]] == [ids[3]]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "after=-1", "after=9999999999999999999", "state=x", "phase=x",
              "code=x", "type=a%2Fb", "key=", "key=%00", "x=1", "limit=%D9%A3", "limit=1_0"],
)  # fmt: skip
def test_filters_that_are_none_are_refused(bob: Tenant, query: str) -> None:
    got = bob("GET", f"/v1/{{}}/jobs?{query}")
    assert got.status == 400, got
    assert got.error


# -- one job ---------------------------------------------------------------------------------------------------------
def test_a_job_is_looked_at_as_the_seed_shows_it(acme: Tenant) -> None:
    (job_id,) = added(acme, {"type": "mail", "payload": "p", "at": FAR})
    seen = acme("GET", f"/v1/{{}}/jobs/{job_id}?view=seed").json
    assert set(seen) == {"id", "type", "dt", "lock", "data", "create_dt", "done_dt"}
    assert (seen["id"], seen["type"], seen["lock"], seen["data"], seen["done_dt"]) == (job_id, "mail", "", "p", None)
    assert datetime.fromisoformat(seen["dt"]) == datetime.fromisoformat(FAR)
    assert acme("POST", f"/v1/{{}}/jobs/{job_id}/cancel").status == 200
    seen = acme("GET", f"/v1/{{}}/jobs/{job_id}?view=seed").json
    assert seen["lock"] == "__done"
    assert seen["done_dt"]


def test_a_job_is_cancelled_with_a_reason(acme: Tenant) -> None:
    (job_id,) = added(acme, {"type": "mail", "at": FAR})
    got = acme("POST", f"/v1/{{}}/jobs/{job_id}/cancel?reason=not%20needed")
    assert (got.status, got.json["state"], got.json["id"]) == (200, "final", job_id)
    assert "not needed" in got.json["error"]
    got = acme("POST", f"/v1/{{}}/jobs/{job_id}/cancel")
    assert got.status == 409
    assert "final" in got.error
    assert acme("POST", f"/v1/{{}}/jobs/{job_id}/cancel?reason=%00").status == 400


def test_a_job_is_retried_now(acme: Tenant) -> None:
    acme.handler("late", "return payload")
    (job_id,) = added(acme, {"type": "late", "payload": "x", "at": FAR})
    assert acme("POST", f"/v1/{{}}/jobs/{job_id}/retry").status == 200
    assert acme.ended(job_id).body == b"x"
    assert acme("POST", f"/v1/{{}}/jobs/{job_id}/retry").status == 409


def test_why_a_job_does_not_run(acme: Tenant) -> None:
    (job_id,) = added(acme, {"type": "mail", "at": FAR})
    found = acme("GET", f"/v1/{{}}/jobs/{job_id}/why").json
    assert found["sentence"]
    assert found["reason"]


@pytest.mark.parametrize(
    "job_id", ["0", "-1", "01", "1.0", "x", "9223372036854775808", "9" * 30, "%00", "..", "1%20", "%D9%A3", "1e3"]
)
def test_what_is_no_id_is_no_job(bob: Tenant, job_id: str) -> None:
    for method, end in (("GET", ""), ("GET", "/why"), ("GET", "/result"), ("POST", "/cancel"), ("POST", "/retry")):
        got = bob(method, f"/v1/{{}}/jobs/{job_id}{end}")
        assert got.status == 404, got
        assert got.error


# -- results ---------------------------------------------------------------------------------------------------------
def test_a_result_comes_byte_for_byte_with_its_code(acme: Tenant) -> None:
    acme.handler("echo", "return payload")
    (job_id,) = acme.add("echo", "grüße \x07".encode())
    got = acme.ended(job_id)
    assert got.body == "grüße \x07".encode()
    assert (got.headers["x-hipq-code"], got.headers["x-hipq-exitcode"]) == ("ok", "200")
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["x-content-type-options"] == "nosniff"
    found = acme("GET", "/v1/{}/results?type=echo").json["results"]
    assert [(job["id"], job["code"]) for job in found] == [(job_id, "ok")]
    assert acme("GET", "/v1/{}/results?type=echo&code=failed").json["results"] == []


def test_a_result_that_is_not_there_yet_is_202(acme: Tenant) -> None:
    (job_id,) = added(acme, {"type": "mail", "at": FAR})
    got = acme("GET", f"/v1/{{}}/jobs/{job_id}/result")
    assert (got.status, got.json) == (202, {"state": "initial", "phase": "scheduled"})
    began = time.monotonic()
    assert acme("GET", f"/v1/{{}}/jobs/{job_id}/result?wait=0.5").status == 202
    assert time.monotonic() - began > 0.4


@pytest.mark.parametrize("wait", ["-1", "61", "x", "nan", "inf", "1e9"])
def test_nobody_waits_for_ever(bob: Tenant, wait: str) -> None:
    got = bob("GET", f"/v1/{{}}/jobs/65537/result?wait={wait}")
    assert got.status == 400
    assert "wait" in got.error


def test_who_waits_hears_at_once_when_the_job_ends(acme: Tenant) -> None:
    (job_id,) = added(acme, {"type": "mail", "at": FAR})
    heard: list[Any] = []
    waiting = threading.Thread(target=lambda: heard.append(acme("GET", f"/v1/{{}}/jobs/{job_id}/result?wait=60")))
    waiting.start()
    assert not heard
    acme("POST", f"/v1/{{}}/jobs/{job_id}/cancel")
    waiting.join(30)
    (got,) = heard
    assert (got.status, got.headers["x-hipq-code"]) == (200, "cancelled")


def test_who_asks_right_after_adding_finds_the_job(acme: Tenant) -> None:
    """It may be in the journal still."""
    for _ in range(30):
        (job_id,) = acme.add("mail", b"x", f"?dt={FAR}")
        assert acme("GET", f"/v1/{{}}/jobs/{job_id}").status == 200


# -- answers ---------------------------------------------------------------------------------------------------------
def test_an_answer_is_buffered_until_its_job_comes(acme: Tenant) -> None:
    got = acme("POST", "/v1/{}/answers/charge/order%2F9", b"paid", idempotency_key="a1")
    assert (got.status, got.json) == (202, {"answer": "buffered"})
    got = acme("POST", "/v1/{}/answers/charge/order%2F9", b"paid", idempotency_key="a1")
    assert (got.status, got.json) == (200, {"answer": "duplicate"})
    assert acme("POST", "/v1/{}/answers/charge/k?error=true&attempt=2", {"a": 1}).status == 202


@pytest.mark.parametrize(
    ("path", "status"),
    [("charge/%00", 400), ("charge/" + "k" * 501, 400), ("charge/", 400), ("a%20b/k", 400), ("charge/k?error=yes", 400),
     ("charge/k?attempt=-1", 400), ("charge/%E2%80%AEx", 400)],
)  # fmt: skip
def test_an_answer_to_what_can_be_no_job_is_refused(bob: Tenant, path: str, status: int) -> None:
    got = bob("POST", f"/v1/{{}}/answers/{path}", b"x")
    assert got.status == status, got
    assert got.error


# -- queues and handlers ---------------------------------------------------------------------------------------------
def test_queues_say_what_waits(acme: Tenant) -> None:
    found = acme("GET", "/v1/{}/queues").json["queues"]
    assert all({"type", "waiting", "running"} <= set(one) for one in found)
    acme.handler("slow", "import time; time.sleep(30)")
    acme.add("slow", b"x\n" * 40)

    def seen() -> bool:
        there = [one for one in acme("GET", "/v1/{}/queues").json["queues"] if one["type"] == "slow"]
        return bool(there) and there[0]["running"] > 0 and there[0]["waiting"] > 0

    eventually(seen)
    for job in acme("GET", "/v1/{}/jobs?type=slow").json["jobs"]:
        acme("POST", f"/v1/{{}}/jobs/{job['id']}/cancel")


def test_handlers_are_set_listed_and_deleted_with_their_versions(acme: Tenant) -> None:
    path = "/v1/{}/handlers/versioned"
    for number in range(3):
        assert acme("PUT", path, {"lang": "python", "body": f"return {number}"}).status == 200
    assert acme("GET", path).json["body"] == "return 2"
    versions = acme("GET", f"{path}/versions").json["versions"]
    assert [one["body"] for one in versions] == ["return 2", "return 1", "return 0"]
    assert acme("GET", f"{path}/versions/{versions[1]['id']}").json == versions[1]
    assert acme("GET", f"{path}/versions/ffff").status == 404
    assert "versioned" in [one["type"] for one in acme("GET", "/v1/{}/handlers").json["handlers"]]
    assert acme("DELETE", path).status == 200
    assert acme("GET", path).status == 404
    assert acme("GET", f"{path}/versions").json["versions"] == versions, "one of them can be brought back"
    assert acme("DELETE", f"{path}?purge=true").status == 200
    for method, end in (("DELETE", ""), ("GET", ""), ("GET", "/versions"), ("GET", "/versions/ff")):
        got = acme(method, path + end)
        assert (got.status, got.error) == (404, "there is no handler for this job type")


# -- the daemon itself -----------------------------------------------------------------------------------------------
def test_whoami_says_whose_token_it_is(acme: Tenant) -> None:
    mine, admin = acme("GET", "/v1/whoami").json, site().admin()("GET", "/v1/whoami").json
    assert (mine["tenant"], mine["roles"]) == (acme.name, ["deploy", "operate", "post", "read"])
    assert (admin["tenant"], admin["roles"]) == (None, ["admin", "deploy", "metrics", "operate", "post", "read"])
    assert set(mine) == {"tenant", "roles", "token", "name", "expires"}


def test_health_says_one_word_to_anybody(acme: Tenant) -> None:
    got = acme.daemon.call("GET", "/health")
    assert (got.status, got.json) == (200, {"status": "ok"})


def test_metrics_are_for_admins(bob: Tenant) -> None:
    bob.add("counted", b"abc\nde")
    got = site().admin()("GET", "/metrics")
    assert got.status == 200
    text = got.body.decode()
    assert f'hipq_jobs_accepted_total{{tenant="{bob.name}"}} 2.0' in text
    assert f'hipq_job_bytes_accepted_total{{tenant="{bob.name}"}} 5.0' in text
    assert 'hipq_http_requests_total{route="/{client}/job/{type}/add",status="200"}' in text
    assert 'hipq_health{status="ok"} 1.0' in text
    assert bob("GET", "/metrics").status == 404
    assert bob.daemon.call("GET", "/metrics").status == 401


def test_an_admin_may_act_for_every_tenant_there_is(bob: Tenant) -> None:
    admin = site().admin()
    (job_id,) = admin("POST", f"/{bob.name}/job/mail/add", b"x").json["ids"]
    assert bob.job(job_id)["payload"] == "x"
    assert admin("GET", "/v1/nobody/jobs").status == 404


def test_metrics_say_what_jobs_of_each_tenant_came_to(bob: Tenant) -> None:
    """Whoever scrapes has a token for that and nothing else."""
    _, secret = site().tenants.token("*", roles=["metrics"])
    scraper = Tenant(bob.daemon, "", secret)
    assert scraper("GET", "/metrics").status == 200, "jobs are counted from the first look on"
    assert scraper("GET", f"/v1/{bob.name}/jobs").status == 403
    bob.handler(
        "measured", "import os\nif payload == 'die': os._exit(9)\nif payload == 'bad': return 400\nreturn payload"
    )
    for payload in (b"good", b"bad"):
        (job_id,) = bob.add("measured", payload)
        bob.ended(job_id)
    bob.add("measured", b"die")
    bob.add("elsewhere", b"x", "?dt=2040-01-01T00:00:00Z")

    def figures() -> dict[str, float]:
        lines = scraper("GET", "/metrics").body.decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def killed(found: dict[str, float]) -> float:
        return sum(value for name, value in found.items() if name.startswith("hipq_context_kills_total{"))

    found = eventually(lambda: killed(now := figures()) and now)
    job = f'queue="jobs",tenant="{bob.name}",type="measured"'
    assert found[f'hipq_jobs_ended_total{{code="ok",{job}}}'] == 1
    assert found[f'hipq_jobs_ended_total{{code="failed",{job}}}'] == 1
    assert found[f"hipq_run_duration_seconds_count{{{job}}}"] >= 2
    assert found[f'hipq_jobs_live{{tenant="{bob.name}"}}'] >= 1 or eventually(
        lambda: figures()[f'hipq_jobs_live{{tenant="{bob.name}"}}'] >= 1
    )
    assert found["hipq_store_up"] == 1
    assert found['hipq_engines{queue="jobs"}'] >= 1
    for name in ('hipq_queue_oldest_due_seconds{queue="jobs"}', "hipq_journal_bytes", "hipq_journal_jobs",
                 "hipq_http_connections", 'hipq_contexts{state="idle"}', "process_resident_memory_bytes"):  # fmt: skip
        assert found[name] >= 0
    assert found["hipq_journal_limit_bytes"] == 1 << 30
    assert found["hipq_http_connections"] >= 1
