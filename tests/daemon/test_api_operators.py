"""Tenants, quotas, tokens and the audit log over HTTP: for operators, and for nobody else."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest

from hipq.daemon.http import api
from tests.daemon.api_serving import Tenant, eventually, site


@pytest.fixture(scope="module")
def boss() -> Tenant:
    site().tenant()
    return site().admin()


def test_a_tenant_is_added_changed_and_removed(boss: Tenant) -> None:
    got = boss("POST", "/v1/tenants", {"tenant": "new.one", "weight": 2, "rate": 50})
    assert got.status == 201
    assert boss("GET", "/v1/tenants/new.one").json == got.json
    assert (got.json["weight"], got.json["rate"], got.json["waiting"], got.json["tokens"]) == (2, 50, 0, 0)
    changed = boss("PATCH", "/v1/tenants/new.one", {"waiting": 9, "rate": 0}).json
    assert (changed["weight"], changed["rate"], changed["waiting"]) == (2, 0, 9)
    assert "new.one" in [one["tenant"] for one in boss("GET", "/v1/tenants").json["tenants"]]
    assert boss("POST", "/v1/tenants", {"tenant": "new.one"}).status == 409
    assert boss("DELETE", "/v1/tenants/new.one").json == {"removed": "new.one"}
    assert boss("GET", "/v1/tenants/new.one").error == "there is no tenant 'new.one'"
    assert boss("POST", "/v1/tenants", {"tenant": "new.one"}).error.startswith("a tenant new.one was removed")
    assert boss("POST", "/v1/tenants", {"tenant": "new.one", "again": True}).status == 201


def test_a_quota_counts_where_it_was_set(boss: Tenant) -> None:
    tenant = site().tenant()
    boss("PATCH", f"/v1/tenants/{tenant.name}", {"waiting": 1})
    eventually(lambda: tenant("POST", "/{}/job/far/add?dt=2040-01-01T00:00:00Z", b"x\ny").status == 413)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/v1/tenants", {"tenant": "tenants"}, 400, "a tenant's name must be"),
        ("POST", "/v1/tenants", {"tenant": "a/b"}, 400, "a tenant's name must be"),
        ("POST", "/v1/tenants", {"tenant": "ok", "wait": 1}, 400, "unknown field `wait`"),
        ("POST", "/v1/tenants", {"tenant": "ok", "rate": -1}, 400, "Expected `int` >= 0"),
        ("POST", "/v1/tenants", [], 400, "Expected `object`"),
        ("PATCH", "/v1/tenants/nobody", {}, 400, "say what is to change: weight, waiting"),
        ("PATCH", "/v1/tenants/nobody", {"rate": 1}, 404, "there is no tenant 'nobody'"),
        ("GET", "/v1/tenants/*", None, 400, "a tenant's name must be"),
        ("DELETE", "/v1/tenants/*", None, 400, "a tenant's name must be"),
        ("POST", "/v1/tokens", {"roles": []}, 400, "length >= 1"),
        ("POST", "/v1/tokens", {"roles": ["boss"]}, 400, "a token's role is one of"),
        ("POST", "/v1/tokens", {"tenant": "nobody", "roles": ["post"]}, 404, "there is no tenant 'nobody'"),
        ("POST", "/v1/tokens", {"tenant": "nobody", "roles": ["admin"]}, 400, "the role admin is for all tenants"),
        ("POST", "/v1/tokens", {"roles": ["post"], "expires": "2020-01-01T00:00:00Z"}, 400, "must expire after now"),
        ("POST", "/v1/tokens/0123/rotate", None, 404, "there is no token with the id '0123'"),
        ("POST", "/v1/tokens/0123/rotate", {"overlap": -1}, 400, "Expected `float` >= 0"),
        ("DELETE", "/v1/tokens/0123", None, 404, "there is no token with the id '0123'"),
        ("GET", "/v1/tokens?tenant=nobody", None, 404, "there is no tenant 'nobody'"),
        ("GET", "/v1/audit?limit=0", None, 400, "limit must be a whole number from 1 to 1000"),
    ],
)
def test_what_is_wrong_is_said(boss: Tenant, method: str, path: str, body: object, status: int, said: str) -> None:
    got = boss(method, path, body)
    assert (got.status, said in got.error) == (status, True), got


def test_a_token_is_made_rotated_and_revoked(boss: Tenant) -> None:
    tenant = site().tenant()
    got = boss("POST", "/v1/tokens", {"tenant": tenant.name, "roles": ["read"], "name": "board"})
    assert (got.status, got.json["roles"], got.json["tenant"]) == (201, ["read"], tenant.name)
    old = Tenant(tenant.daemon, tenant.name, got.json["token"])
    assert old("GET", "/v1/{}/jobs").status == 200
    rotated = boss("POST", f"/v1/tokens/{got.json['id']}/rotate", {"overlap": 3600})
    new = Tenant(tenant.daemon, tenant.name, rotated.json["token"])
    assert [one("GET", "/v1/{}/jobs").status for one in (old, new)] == [200, 200]
    assert new("POST", "/{}/job/mail/add", b"x").status == 403
    first, second, third = boss("GET", f"/v1/tokens?tenant={tenant.name}").json["tokens"]
    left = datetime.fromisoformat(second["expires"]) - datetime.fromisoformat(third["made"])
    assert (first["expires"], left) == (None, timedelta(hours=1))
    assert "token" not in second
    assert boss("DELETE", f"/v1/tokens/{third['id']}").json == {"revoked": third["id"]}
    eventually(lambda: new("GET", "/v1/{}/jobs").status == 401)
    soon = boss("POST", f"/v1/tokens/{second['id']}/rotate", {"overlap": 0}).json
    eventually(lambda: old("GET", "/v1/{}/jobs").status == 401)
    assert soon["expires"] is None, "as the old one was made"


def test_a_tenant_called_like_a_route_is_reached(boss: Tenant) -> None:
    for name in ("jobs", "queues"):
        boss("POST", "/v1/tenants", {"tenant": name, "again": True})
        assert boss("GET", f"/v1/tenants/{name}").json["tenant"] == name
        assert boss("GET", f"/v1/{name}/jobs").json["jobs"] == []


# -- the audit log ---------------------------------------------------------------------------------------------------
def test_who_changed_what_is_in_the_audit_log(boss: Tenant) -> None:
    tenant = site().tenant()
    ci = boss("POST", "/v1/tokens", {"tenant": tenant.name, "roles": ["deploy"], "name": "ci"}).json
    deployer = Tenant(tenant.daemon, tenant.name, ci["token"])
    version = deployer("PUT", "/v1/{}/handlers/mail", {"lang": "python", "body": "return 'canary'"}).json["id"]
    (job_id,) = tenant.add("mail", b"canary", "?dt=2040-01-01T00:00:00Z")
    eventually(lambda: tenant("POST", f"/v1/{{}}/jobs/{job_id}/cancel?reason=twice").status == 200)
    tenant("POST", f"/v1/{{}}/jobs/{job_id}/cancel")  # 409: nothing was changed
    boss("DELETE", f"/v1/tokens/{ci['id']}")
    made, put, cancelled, revoked = boss("GET", "/v1/audit?limit=4").json["entries"][::-1]
    assert {one["via"] for one in (made, put, cancelled, revoked)} == {"api"}
    assert {one["address"] for one in (made, put, cancelled, revoked)} == {"127.0.0.1"}
    assert (made["action"], made["role"], made["details"]["id"]) == ("tokens", "admin", ci["id"])
    assert (put["who"], put["role"], put["action"], put["target"], put["details"]) == (
        f"ci (token {ci['id']})", "deploy", "handlers (put)", f"/v1/{tenant.name}/handlers/mail", {"version": version},
    )  # fmt: skip
    assert (cancelled["action"], cancelled["details"]) == ("job cancel", {"reason": "twice"})
    assert cancelled["target"].endswith(f"/jobs/{job_id}/cancel")
    assert (revoked["action"], revoked["target"]) == ("tokens (delete)", f"/v1/tokens/{ci['id']}")
    assert revoked["details"] == {"token": f"ci (token {ci['id']})", "tenant": tenant.name}
    assert "canary" not in str((made, put, cancelled, revoked))
    page = boss("GET", "/v1/audit?limit=2").json
    assert boss("GET", f"/v1/audit?limit=1&after={page['next']}").json["entries"][0]["number"] < page["next"]


def test_what_a_role_does_not_allow_is_recorded_once_a_minute(boss: Tenant) -> None:
    tenant = site().tenant()
    made = boss("POST", "/v1/tokens", {"tenant": tenant.name, "roles": ["post"], "name": "shop"}).json
    poster = Tenant(tenant.daemon, tenant.name, made["token"])
    for _ in range(3):
        assert poster("PUT", "/v1/{}/handlers/mail", {"lang": "python", "body": "return 1"}).status == 403
        assert poster("GET", "/v1/{}/jobs").status == 403, "reading is not in the audit log"
    entries = boss("GET", "/v1/audit").json["entries"]
    (entry,) = [one for one in entries if one["who"] == f"shop (token {made['id']})"]
    assert (entry["action"], entry["details"]) == (
        "handlers (put)", {"refused": "this takes a token with the role deploy"},
    )  # fmt: skip


def test_every_change_has_an_action_of_its_own() -> None:
    actions = [route.action for route in api.ROUTES if route.is_change]
    assert all(re.fullmatch(r"[a-z]+( [a-z]+)*( \((put|patch|delete)\))?", one) for one in actions), actions
    assert len(set(actions)) == len(actions)
