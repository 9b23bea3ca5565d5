"""Every role on every route: what opens what is a table, which the docs show, and each of its cells is tried."""

from __future__ import annotations

import http.client
from functools import cache
from pathlib import Path

import pytest

from hipq.daemon.http.api import ROUTES
from hipq.daemon.http.routes_table import Route
from hipq.daemon.tenancy.tokens import ABOUT, ALL_TENANTS, TENANT_ROLES, Caller, Role, Token
from tests.daemon.api_serving import Tenant, site
from tests.daemon.test_api_foreign import body_of, path_of

PAGE = Path(__file__).parents[2] / "docs/tokens.md"
GUARDED = [route for route in ROUTES if route.roles]


def opens(role: Role, route: Route) -> bool:
    """What the table says, by the roles of a token that was made with this one."""
    return not Caller.of("", Token("", "", 0, roles=(role,))).roles.isdisjoint(route.roles)


def table() -> str:
    """The table of docs/tokens.md."""
    lines = ["| | " + " | ".join(f"`{role}`" for role in Role) + " |", "|---" + "|:-:" * len(Role) + "|"]
    for route in GUARDED:
        marks = " | ".join("x" if opens(role, route) else "" for role in Role)
        lines.append(f"| `{route.method} {route.path}` | {marks} |".replace("|  |", "| |").replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def test_the_page_shows_the_table_of_the_routes() -> None:
    assert table() in PAGE.read_text(), f"docs/tokens.md should have this table:\n\n{table()}"
    for role, about in ABOUT.items():
        assert f"| `{role}` | {about} |" in PAGE.read_text()


def test_no_route_is_open_by_accident() -> None:
    assert {route.path for route in ROUTES if not route.roles} == {
        "/health", "/ready", "/openapi.json", "/docs", "/v1/whoami",
    }  # fmt: skip
    for route in GUARDED:
        assert opens(Role.ADMIN, route)
        assert opens(Role.POST, route) == route.adds or opens(Role.POST, route) is False
        if "handler" in route.path and route.method != "GET":
            assert [role for role in Role if opens(role, route)] == [Role.DEPLOY, Role.ADMIN]


@cache
def acme() -> Tenant:
    return site().tenant()


@cache
def token(owner: str, role: Role) -> str:
    return site().tenants.token(owner, roles=[role])[1]


def status(route: Route, path: str, secret: str) -> int:
    """Of its reply, whose body may never end."""
    connection = http.client.HTTPConnection("127.0.0.1", acme().daemon.port, timeout=60)
    try:
        headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
        connection.request(route.method, path, body_of(route), headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
def test_a_role_opens_what_the_table_says_and_nothing_else(route: Route) -> None:
    path = path_of(route, client=acme().name)
    for role in TENANT_ROLES:
        found = status(route, path, token(acme().name, role))
        if route.who == "operator":
            assert found == 404, f"{role} of a tenant: to it there is no such path"
        else:
            assert (found == 403) == (not opens(role, route)), f"{role}: {found}"
            assert found != 401
    for role in Role:
        found = status(route, path, token(ALL_TENANTS, role))
        assert (found == 403) == (not opens(role, route)), f"{role} of an operator: {found}"
        assert found != 401


@pytest.mark.parametrize("role", TENANT_ROLES)
def test_another_tenants_path_is_404_whatever_the_role(role: Role) -> None:
    """I14: also where the role would not open it."""
    other = site().tenant()
    for route in GUARDED:
        assert status(route, path_of(route, client=other.name), token(acme().name, role)) == 404


def test_a_token_that_posts_cannot_replace_code() -> None:
    tenant = site().tenant()
    tenant.handler("mail", "return 'right'")
    poster = Tenant(tenant.daemon, tenant.name, site().tenants.token(tenant.name, roles=["post"])[1])
    source = {"lang": "python", "body": "return 'wrong'"}
    for method, path in (("PUT", "/v1/{}/handlers/mail"), ("POST", "/{}/handler/add/mail"),
                         ("DELETE", "/v1/{}/handlers/mail"), ("POST", "/{}/handler/del/mail")):  # fmt: skip
        got = poster(method, path, source)
        assert (got.status, got.error) == (403, "this takes a token with the role deploy")
    (job_id,) = poster.add("mail", b"x")
    assert poster("GET", f"/v1/{{}}/jobs/{job_id}").status == 403
    assert tenant.ended(job_id).body == b"right"


def test_a_token_that_may_not_post_cannot_by_the_short_way() -> None:
    tenant = site().tenant()
    reader = Tenant(tenant.daemon, tenant.name, site().tenants.token(tenant.name, roles=["read"])[1])
    assert reader("GET", "/v1/{}/jobs").status == 200, "it is known"
    got = reader("POST", "/{}/job/mail/add", b"x", content_type="text/plain")
    assert (got.status, got.error) == (403, "this takes a token with the role post")
    assert reader("GET", "/v1/{}/jobs").json["jobs"] == []
