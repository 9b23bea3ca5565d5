"""In an application that knows its users: Starlette's sessions, and its own errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from hipq import Hipq
from hipq.dashboard import Role, Visitor, asgi
from tests.dashboard.test_same_site import with_action


async def log_in(request: Request) -> PlainTextResponse:
    request.session["user"] = request.query_params["user"]
    return PlainTextResponse("hello")


def authenticate(scope: Any) -> Visitor | None:
    user = scope["session"].get("user")
    if user == "banned":
        raise HTTPException(418, "go away")
    return Visitor(user, Role.OPERATE) if user else None


@pytest.fixture
def app() -> Iterator[Hipq]:
    app = Hipq("shop", "sqlite://")
    app.queue("orders")
    yield app
    app.close()


def test_its_users_are_the_visitors(app: Hipq) -> None:
    dashboard = asgi(app, authenticate=authenticate)
    done = with_action(dashboard)
    routes = [Route("/in", log_in), Mount("/hipq", dashboard)]
    host = Starlette(routes=routes, middleware=[Middleware(SessionMiddleware, secret_key="s" * 32)])
    client = TestClient(host, headers={"accept": "text/html"}, follow_redirects=False)
    assert client.get("/hipq/").status_code == 401
    client.get("/in?user=ann")
    page = client.get("/hipq/jobs")
    assert page.status_code == 200
    assert 'href="/hipq/jobs"' in page.text
    found = re.search(r'name="csrf" content="([^"]+)"', page.text)
    assert found
    assert client.post("/hipq/jobs/7/frob", data={"csrf": "x" * 43}).status_code == 403
    got = client.post("/hipq/jobs/7/frob", data={"csrf": found[1]})
    assert (got.status_code, got.headers["location"]) == (303, "/hipq/jobs")
    client.get("/in?user=bob")
    assert client.post("/hipq/jobs/7/frob", data={"csrf": found[1]}).status_code == 403
    assert client.post("/hipq/logout", data={"csrf": found[1]}).status_code == 403
    client.get("/in?user=banned")
    assert client.get("/hipq/jobs").status_code == 418
    assert done == ["ann"]
    assert [(one.who, one.target) for one in app.store.audit_log(0, 10)] == [("ann", "/jobs/7/frob")]
