"""The routes of seed 003, one by one, in tests named after them; on both stores."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.daemon.api_serving import Tenant, site


@pytest.fixture(scope="module")
def acme(store_kind: str) -> Tenant:
    return site(store_kind).tenant()


def payloads(tenant: Tenant, ids: list[str]) -> list[str]:
    return [tenant.job(job_id)["payload"] for job_id in ids]


# -- /{client}/job/{type}/add ----------------------------------------------------------------------------------------
def test_client_job_type_add_takes_a_line_for_each_job_and_returns_the_ids_in_order(acme: Tenant) -> None:
    ids = acme.add("resize", b"first\nsecond\n\nlast")
    assert len(ids) == 4
    assert all(isinstance(job_id, str) and job_id.isdigit() for job_id in ids)
    assert ids == sorted(ids, key=int)
    assert payloads(acme, ids) == ["first", "second", "", "last"]
    (job, *_) = [acme.job(job_id) for job_id in ids]
    assert (job["type"], job["priority"], job["timeout"]) == ("resize", 100, 86_400)


def test_client_job_type_add_takes_a_json_array(acme: Tenant) -> None:
    ids = acme.add("resize.v2", ["text é", 5, {"a": [1, None]}, True])
    assert payloads(acme, ids) == ["text é", "5", '{"a":[1,null]}', "true"]
    (only,) = acme.add("resize.v2", {"not": "an array"})
    assert payloads(acme, [only]) == ['{"not":"an array"}']


def test_client_job_type_add_takes_byte_counted_binary(acme: Tenant) -> None:
    ids = acme.add("resize", b"3\na\nb\n2\n\xff\x00\n0\n\n", content_type="application/octet-stream")
    first, second, third = (acme.job(job_id) for job_id in ids)
    assert first["payload"] == "a\nb"
    assert second["payload_base64"] == "/wA="
    assert third["payload"] == ""


def test_client_job_type_add_dt_is_when_it_may_start(acme: Tenant) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    for said in (later.isoformat().replace("+", "%2B"), later.strftime("%Y-%m-%dT%H:%M:%SZ"), str(later.timestamp())):
        (job_id,) = acme.add("resize", b"x", f"?dt={said}")
        job = acme.job(job_id)
        assert job["phase"] == "scheduled"
        assert datetime.fromisoformat(job["at"]) == later


def test_client_job_type_add_takes_a_priority_and_for_one_job_a_key(acme: Tenant) -> None:
    (job_id,) = acme.add("resize", b"x", "?priority=7&key=order%2F17")
    assert (acme.job(job_id)["priority"], acme.job(job_id)["key"]) == (7, "order/17")
    got = acme("POST", "/{}/job/resize/add?key=order%2F17", b"x")
    assert (got.status, got.json["id"]) == (409, job_id)
    assert "has this key already" in got.error
    assert acme("POST", "/{}/job/resize/add?key=k", b"x\ny").status == 400


@pytest.mark.parametrize(
    ("query", "body", "kind", "status"),
    [
        ("", b"", "text/plain", 400),
        ("", b"[]", "application/json", 400),
        ("", b"[1", "application/json", 400),
        ("", b"5\nabc\n", "application/octet-stream", 400),
        ("", b"x", "multipart/form-data", 415),
        ("?priority=-2147483649", b"x", "", 400),
        ("?priority=99999999999999999999", b"x", "", 400),
        ("?priority=1.5", b"x", "", 400),
        ("?priority=1&priority=2", b"x", "", 400),
        ("?dt=yesterday", b"x", "", 400),
        ("?dt=2027-01-01T00:00:00", b"x", "", 400),
        ("?dt=10000-01-01T00:00:00Z", b"x", "", 400),
        ("?dt=0000-01-01T00:00:00Z", b"x", "", 400),
        ("?dt=1e400", b"x", "", 400),
        ("?dt=nan", b"x", "", 400),
        ("?dt=-5", b"x", "", 400),
        ("?dt=999999999999", b"x", "", 400),
        ("?key=", b"x", "", 400),
        ("?key=%00", b"x", "", 400),
        ("?key=" + "k" * 501, b"x", "", 400),
        ("?key=%ff", b"x", "", 400),
        ("?typo=1", b"x", "", 400),
    ],
)
def test_client_job_type_add_refuses_what_is_wrong(query: str, body: bytes, kind: str, status: int) -> None:
    tenant = shared()
    got = tenant("POST", f"/{{}}/job/resize/add{query}", body, **({"content_type": kind} if kind else {}))
    assert got.status == status
    assert got.error
    assert tenant("GET", "/v1/{}/jobs").json["jobs"] == []


_shared: list[Tenant] = []


def shared() -> Tenant:
    """One for all that is refused: it never has a job."""
    if not _shared:
        _shared.append(site().tenant())
    return _shared[0]


# -- /{client}/handler/add/{type} ------------------------------------------------------------------------------------
@pytest.mark.parametrize("end", ["", "/add"])
def test_client_handler_add_type_takes_source_and_its_language(acme: Tenant, end: str) -> None:
    got = acme("POST", f"/{{}}/handler/add/mail{end}?method=node", "return 'é'".encode(), content_type="text/plain")
    assert got.status == 200
    found = acme("GET", "/{}/handler/get/mail").json
    assert found == got.json
    assert (found["lang"], found["body"], found["type"]) == ("node", "return 'é'", "mail")


@pytest.mark.parametrize("end", ["", "/add"])
def test_client_handler_add_type_takes_the_seeds_object(acme: Tenant, end: str) -> None:
    sent = {"eid": "e", "lang": "php", "before": "a();", "beforeEach": "b();", "body": "c();", "afterEach": "d();"}
    assert acme("POST", f"/{{}}/handler/add/mail{end}", sent).status == 200
    found = acme("GET", "/{}/handler/get/mail").json
    assert {name: found[name] for name in sent} == sent
    text = json.dumps({"lang": "python", "body": "return 1"}).encode()
    assert acme("POST", f"/{{}}/handler/add/mail{end}", text, content_type="text/plain").status == 200, (
        "no method: JSON"
    )
    assert acme("POST", f"/{{}}/handler/add/mail{end}?method=python", {"body": "return 1"}).status == 200


@pytest.mark.parametrize(
    ("query", "body", "kind", "why"),
    [
        ("?method=python", b"", "text/plain", "empty"),
        ("?method=cobol", b"x", "text/plain", "no method"),
        ("?method=python", b"\xff", "text/plain", "UTF-8"),
        ("?method=python", b"a\x00b", "text/plain", "NUL"),
        ("?method=python", b"x" * 1_000_001, "text/plain", "1,000,000"),
        ("?method=python", b'{"lang": "php", "body": "x"}', "application/json", "differ"),
        ("", b"return 1", "text/plain", "say its language in the query: ?method=python"),
        ("", b'{"lang": "python"}', "application/json", "needs a body"),
        ("", b'{"body": "x"}', "application/json", "language"),
        ("", b'{"lang": "python", "body": 5}', "application/json", "no handler"),
        ("", b'{"lang": "python", "body": "x", "code": "y"}', "application/json", "no handler"),
        ("", b'{"lang": "python", "body": "x", "body": "y"}', "application/json", "twice"),
        ("", b'{"lang": "python", "body": "\\ud800"}', "application/json", "surrogate"),
        ("", b'["python"]', "application/json", "no handler"),
        ("", b'{"lang": "http", "body": "gopher://x"}', "application/json", "http://"),
    ],
)
def test_client_handler_add_type_refuses_what_can_never_run(query: str, body: bytes, kind: str, why: str) -> None:
    got = shared()("POST", f"/{{}}/handler/add/mail{query}", body, content_type=kind)
    assert got.status == 400
    assert why in got.error
    assert shared()("GET", "/{}/handler/get/mail").status == 404


# -- /{client}/handler/del/{type} ------------------------------------------------------------------------------------
@pytest.mark.parametrize("end", ["", "/delete"])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_client_handler_del_type(acme: Tenant, method: str, end: str) -> None:
    acme.handler("gone", "return 1")
    got = acme(method, f"/{{}}/handler/del/gone{end}")
    assert (got.status, got.json) == (200, {"deleted": "gone"})
    got = acme(method, f"/{{}}/handler/del/gone{end}")
    assert (got.status, got.error) == (404, "there is no handler for this job type")


# -- /{client}/handler/get/{type} ------------------------------------------------------------------------------------
def test_client_handler_get_type_returns_the_newest(acme: Tenant) -> None:
    for number in range(3):
        acme.handler("newest", f"return {number}")
    assert acme("GET", "/{}/handler/get/newest").json["body"] == "return 2"
    assert acme("GET", "/{}/handler/get/none").status == 404
    assert acme("HEAD", "/{}/handler/get/newest").body == b""


# -- what all have in common -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/{}/job/x/add", "POST"),
        ("PUT", "/{}/handler/add/x", "POST"),
        ("GET", "/{}/handler/add/x/add", "POST"),
        ("GET", "/{}/handler/del/x", "DELETE, POST"),
        ("PATCH", "/{}/handler/del/x/delete", "DELETE, POST"),
        ("POST", "/{}/handler/get/x", "GET, HEAD"),
    ],
)
def test_another_method_is_405_and_says_which(method: str, path: str, allowed: str) -> None:
    got = shared()(method, path)
    assert (got.status, got.headers["allow"]) == (405, allowed)
    assert got.error


@pytest.mark.parametrize(
    "path",
    ["/{}", "/{}/job", "/{}/job/x", "/{}/job/x/add/", "/{}/handler", "/{}/handler/x/y", "//{}/job/x/add",
     "/{}/job//add", "/v2/{}/jobs", "/{}/../{}/job"],
)  # fmt: skip
def test_any_other_path_is_404(path: str) -> None:
    got = shared()("POST", path, b"x")
    assert got.status in (404, 400)
    assert got.error
