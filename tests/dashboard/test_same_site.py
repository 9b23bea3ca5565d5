"""Nobody changes anything through somebody else's browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hipq import Hipq
from hipq.dashboard import Visitor, asgi
from hipq.dashboard.application import Dashboard
from hipq.dashboard.site import Site
from hipq.dashboard.visit import NOBODY, PageRoute, Reply, Role, Visit, redirect
from tests.dashboard.visiting import HTML, SECRETS, TOKENS, Browser, ask

Done = list[str]


def with_action(dashboard: Dashboard, role: Role = Role.OPERATE) -> Done:
    """An action that every dashboard here has beside its own."""
    done: Done = []

    def act(_site: Site, visit: Visit) -> Reply:
        done.append(visit.visitor.name)
        return redirect(visit.link("/jobs"), {"count": 3})

    add_route(dashboard.site, PageRoute("POST", "/jobs/{id}/frob", role, act))
    return done


def add_route(site: Site, route: PageRoute) -> None:
    from hipq.dashboard import site as module

    site._patterns.append((route, module._compiled(route.pattern)))


@pytest.fixture
def app() -> Iterator[Hipq]:
    app = Hipq("shop", "sqlite://")
    app.queue("orders")
    yield app
    app.close()


def hosted(app: Hipq) -> Dashboard:
    return asgi(app, authenticate=lambda _: Visitor("otto", Role.OPERATE))


def own(app: Hipq) -> Dashboard:
    return asgi(app, tokens=TOKENS)


@pytest.fixture(params=[hosted, own])
def dashboard(request: pytest.FixtureRequest, app: Hipq) -> Dashboard:
    made: Callable[[Hipq], Dashboard] = request.param
    return made(app)


@pytest.fixture
def done(dashboard: Dashboard) -> Done:
    return with_action(dashboard)


@pytest.fixture
def browser(dashboard: Dashboard) -> Browser:
    return logged_in(dashboard)


def logged_in(dashboard: Dashboard, **more: Any) -> Browser:
    browser = Browser(dashboard, **more)
    if dashboard.site.gate.tokens:
        assert browser.log_in(SECRETS["otto"]).status == 303
    assert browser.get("/").status == 200
    assert len(browser.csrf) == 43
    return browser


def test_a_form_of_the_page_does_it(browser: Browser, done: Done) -> None:
    assert browser.post("/jobs/7/frob").status == 303
    assert done == ["otto"]


def test_a_script_sends_it_as_a_header(browser: Browser, done: Done) -> None:
    kept = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    headers = {"cookie": kept, "x-csrf": browser.csrf, "sec-fetch-site": "same-origin"}
    assert ask(browser.application, "/jobs/7/frob", method="POST", headers=headers).status == 303
    assert done == ["otto"]


@pytest.mark.parametrize("csrf", ["", "x", "x" * 43, "ü", "\x00"])
def test_without_its_token_nothing_is_done(browser: Browser, done: Done, csrf: str) -> None:
    got = browser.post("/jobs/7/frob", csrf=csrf)
    assert got.status == 403
    assert "nothing was done" in got.text
    assert done == []


def test_anothers_token_is_none(dashboard: Dashboard, browser: Browser, done: Done) -> None:
    other = logged_in(dashboard)
    assert other.csrf != browser.csrf
    assert browser.post("/jobs/7/frob", csrf=other.csrf).status == 403
    assert done == []


def test_the_token_is_the_same_on_all_pages_of_a_session(browser: Browser) -> None:
    first = browser.csrf
    browser.get("/jobs")
    assert browser.csrf == first


def test_a_cookie_that_somebody_else_has_set_does_not_help(app: Hipq) -> None:
    """An attacker who may visit, too, knows the token of a cookie; but not the one of that cookie and another name."""
    name = ["mallory"]
    dashboard = asgi(app, authenticate=lambda _: Visitor(name[0], Role.ADMIN))
    done = with_action(dashboard)
    mallory = logged_in(dashboard)
    name[0] = "otto"
    victim = Browser(dashboard)
    victim.cookies = dict(mallory.cookies)
    assert victim.post("/jobs/7/frob", csrf=mallory.csrf).status == 403
    assert done == []


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "SAME-ORIGIN"])
def test_from_another_site_nothing_is_done_whatever_it_knows(browser: Browser, done: Done, site: str) -> None:
    got = browser.post("/jobs/7/frob", site=site)
    assert got.status == 403
    assert "another site" in got.text
    assert done == []


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://hipq.example", 303), ("https://HIPQ.example", 303), ("https://evil.example", 403), ("null", 403),
        ("http://hipq.example:81", 403), ("http://hipq.example.evil.example", 403), ("hipq.example", 403),
        ("http://[", 403), ("x://", 403), ("http://evil.example@hipq.example", 403),
    ],
)  # fmt: skip
def test_what_older_browsers_say(dashboard: Dashboard, done: Done, origin: str, status: int) -> None:
    browser = logged_in(dashboard, modern=False)
    assert browser.post("/jobs/7/frob", origin=origin).status == status
    assert done == ["otto"] * (status == 303)


def test_behind_a_proxy_that_changes_the_host_a_modern_browser_is_believed(browser: Browser, done: Done) -> None:
    assert browser.post("/jobs/7/frob", origin="https://public.example").status == 303
    assert done == ["otto"]


def test_a_program_needs_its_token_only(app: Hipq) -> None:
    dashboard = own(app)
    done = with_action(dashboard)
    headers = {"authorization": f"Bearer {SECRETS['otto']}"}
    assert ask(dashboard, "/jobs/7/frob", method="POST", headers=headers).status == 303
    assert ask(dashboard, "/jobs/7/frob", method="POST", headers={"authorization": "Bearer no"}).status == 401
    assert done == ["otto"]


def test_the_login_is_a_form_like_others(app: Hipq) -> None:
    browser = Browser(own(app))
    browser.get("/login")
    for wrong in ({"csrf": "x"}, {"csrf": ""}, {"site": "cross-site"}):
        got = browser.post("/login", token=SECRETS["otto"], **wrong)
        assert (got.status, list(browser.cookies)) == (403, ["hipq_form"])
        assert "<form" in got.text
    headers = {**HTML, "host": "hipq.example", "sec-fetch-site": "same-origin"}
    body = f"token={SECRETS['otto']}&csrf=".encode()
    assert ask(browser.application, "/login", method="POST", headers=headers, body=body).status == 403
    assert browser.post("/login", token=SECRETS["otto"]).status == 303


def test_a_visit_that_no_gate_has_seen_changes_nothing(app: Hipq) -> None:
    """Pages that are rendered for many at once have no token in them."""
    dashboard = own(app)
    done = with_action(dashboard)
    for visitor in (Visitor("", Role.ADMIN), NOBODY):
        visit = Visit("POST", "/jobs/7/frob", "", {}, {"csrf": [""]}, {"x-csrf": ""}, visitor)
        assert dashboard.site.reply(visit).status in (401, 403)
    assert done == []
    assert 'value=""' in str(Visit("GET", "/", "", {}, {}, {}, NOBODY).csrf_field)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "post", "CONNECT", ""])
def test_only_a_post_changes_anything(dashboard: Dashboard, done: Done, method: str) -> None:
    browser = logged_in(dashboard)
    kept = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    headers = {
        "cookie": kept,
        "x-csrf": browser.csrf,
        "sec-fetch-site": "same-origin",
        "x-http-method-override": "POST",
    }
    assert ask(dashboard, "/jobs/7/frob?_method=POST", method=method, headers=headers).status == 405
    assert done == []
