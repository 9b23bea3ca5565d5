"""The dashboard at `/` of a daemon: for its operators, and for nobody else."""

from __future__ import annotations

import re
import urllib.request
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

import pytest

from hipq import Hipq
from hipq.daemon.http.operators import OperatorsDashboard, OperatorTokens
from hipq.daemon.tenancy.tenants import Tenants
from hipq.daemon.tenancy.tokens import TENANT_ROLES
from hipq.daemon.tenancy.tokens import Role as TokenRole
from hipq.dashboard.visit import NOBODY, Visit
from hipq.stores.open import open_store
from tests.daemon.api_serving import Daemon, Got, Tenant, eventually, site

HTML = {"accept": "text/html"}


@pytest.fixture(scope="module")
def tenant() -> Tenant:
    return site().tenant()


@pytest.fixture(scope="module")
def daemon(tenant: Tenant) -> Daemon:
    return tenant.daemon


def session(daemon: Daemon, token: str) -> tuple[int, str]:
    """The status of logging in by the form, and the page that one sees then."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    browser.addheaders = [("accept", "text/html")]
    form = browser.open(f"{daemon.address}/login", timeout=30).read().decode()
    (csrf,) = re.findall(r'name="csrf" value="([^"]+)"', form)
    try:
        page = browser.open(f"{daemon.address}/login", urlencode({"csrf": csrf, "token": token}).encode(), timeout=30)
    except HTTPError as error:
        return error.code, ""
    return page.status, page.read().decode()


def test_nobody_sees_it_without_a_token(daemon: Daemon) -> None:
    for path in ("/", "/jobs", "/jobs/1?x=1", "/rules"):
        got = daemon.call("GET", path, headers=HTML)
        assert (got.status, got.headers["location"][:12]) == (303, "/login?next=")
    for path in ("/live?page=/", "/audit", "/"):
        assert daemon.call("GET", path).status == 401


def test_an_admin_logs_in_and_a_tenant_does_not(daemon: Daemon, tenant: Tenant) -> None:
    status, page = session(daemon, site().admin().token)
    assert status == 200
    assert 'href="/jobs"' in page
    assert session(daemon, tenant.token)[0] == 403
    assert session(daemon, "x" * 40)[0] == 403
    assert daemon.call("GET", "/jobs", token=tenant.token).status == 401
    assert daemon.call("GET", "/live?page=/", token=tenant.token).status == 401


def test_a_token_sees_and_does_what_its_roles_say(daemon: Daemon, tenant: Tenant) -> None:
    (job_id,) = tenant.add("mail", b"x", "?dt=2040-01-01T00:00:00Z")
    eventually(lambda: tenant("GET", f"/v1/{{}}/jobs/{job_id}").status == 200)

    def statuses(role: str) -> tuple[int, int]:
        _, secret = site().tenants.token("*", role, [role])
        return daemon.call("GET", "/jobs", token=secret).status, daemon.call("GET", "/audit", token=secret).status

    assert {role: statuses(role) for role in ("read", "operate", "admin")} == {
        "read": (200, 403), "operate": (200, 403), "admin": (200, 200),
    }  # fmt: skip


def test_a_role_of_a_token_is_one_of_the_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    tenants = Tenants(open_store("sqlite://"))
    tenants.store.migrate()
    tenants.add("acme")
    expires = tenants.store.now() + 60_000_000
    seen: dict[tuple[str, str], str | None] = {}
    tokens = OperatorTokens(tenants)
    for owner, roles in (("*", list(TokenRole)), ("acme", TENANT_ROLES)):
        for role in roles:
            _, secret = tenants.token(owner, "ann", [role], expires)
            tenants.look()
            visitor = tokens.visitor(secret)
            seen[owner, role] = visitor and visitor.role.name
            assert visitor is None or tokens.named(visitor.name) is not None
    assert {key: role for key, role in seen.items() if role} == {
        ("*", "read"): "VIEW", ("*", "operate"): "OPERATE", ("*", "admin"): "ADMIN",
    }  # fmt: skip
    visitor = tokens.visitor(secret := tenants.token("*", "ann", ["admin"], expires)[1])
    assert visitor is None, "it is not looked up yet"
    tenants.look()
    visitor = tokens.visitor(secret)
    assert visitor
    monkeypatch.setattr("time.time_ns", lambda: expires * 1000 + 1000)
    assert tokens.visitor(secret) is None
    assert tokens.named(visitor.name) is None, "its session ends, too"


def test_it_has_the_pages_of_a_daemon(daemon: Daemon, tenant: Tenant) -> None:
    tenant.handler("mail", "return 'sent to <everybody>'")
    token = site().admin().token
    paths = ("/tenants", f"/tenants/{tenant.name}", "/handlers", f"/handlers/{tenant.name}/mail", "/journal")
    for path in paths:
        assert daemon.call("GET", path, headers=HTML).status == 303
        assert daemon.call("GET", path, token=tenant.token).status == 401
        got = daemon.call("GET", path, token=token)
        assert (got.status, got.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert re.findall(r"nav.*?</nav>", got.body.decode(), re.DOTALL)[0].count("<a ") == 8
        assert daemon.call("POST", path, token=token).status == 405
    assert "sent to &lt;everybody&gt;" in daemon.call("GET", paths[3], token=token).body.decode()
    listed = daemon.call("GET", f"/tenants?after={tenant.name[:-1]}", token=token).body.decode()
    assert f'href="/tenants/{tenant.name}"' in listed


def test_a_revoked_token_is_good_for_nothing(daemon: Daemon) -> None:
    token, secret = site().tenants.token("*")

    def seen() -> Got:
        return daemon.call("GET", "/jobs", token=secret)

    assert seen().status == 200
    site().tenants.revoke("*", token.id)
    eventually(lambda: seen().status == 401)


def test_the_routes_of_the_daemon_are_its_own(daemon: Daemon, tenant: Tenant) -> None:
    assert daemon.call("GET", "/health").json == {"status": "ok"}
    for path in ("/nothing", "/jobs/1/nothing/more", f"/{tenant.name}", "/static/nothing.js"):
        assert daemon.call("GET", path, headers=HTML).error == "there is nothing here"
    assert daemon.call("GET", "/static/live.js").headers["content-type"] == "text/javascript; charset=utf-8"


def test_a_daemon_stops_though_somebody_looks() -> None:
    daemon = site().daemon()
    token = site().admin().token
    with daemon.connect() as link:
        link.sendall(
            b"GET /live?page=/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            b"authorization: Bearer %s\r\n\r\n" % token.encode()
        )
        found = b""
        while b"retry: 1000" not in found:
            part = link.recv(4096)
            assert part, found
            found += part
        assert found.startswith(b"HTTP/1.1 200 ")
        assert daemon.stop() == 0
    assert "Traceback" not in daemon.log


def test_without_tokens_it_is_open_to_this_machine_only() -> None:
    daemon = site().daemon("--no-tokens")
    assert daemon.call("GET", "/jobs").status == 200
    assert daemon.call("GET", "/jobs", host="elsewhere.example").status == 401
    assert daemon.stop() == 0


def test_daemons_behind_a_balancer_know_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    tenants = Tenants(open_store("sqlite://"))
    tenants.store.migrate()
    secret = tenants.token("*", "ann", ["read"])[1]
    tenants.look()
    service = SimpleNamespace(tenants=tenants, app=Hipq("daemon", "sqlite://"))
    api: Any = SimpleNamespace(service=service, wrong_tokens=SimpleNamespace(add=None))

    def seen_by_another() -> str:
        one, other = (OperatorsDashboard(api, api, tokens=True).site.gate for _ in range(2))
        visit = Visit("POST", "/login", "", {}, {}, {}, NOBODY)
        cookie = one.log_in(visit, secret)[1].partition(";")[0]
        return other.admit(visit._replace(headers={"cookie": cookie})).visitor.role.name

    monkeypatch.delenv("HIPQ_DASHBOARD_SECRET", raising=False)
    assert seen_by_another() == "NOBODY"
    monkeypatch.setenv("HIPQ_DASHBOARD_SECRET", "s" * 32)
    assert seen_by_another() == "VIEW"
