"""/docs in a real browser: a person opens the page, enters a token, tries a route and reads the reply."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hipq.daemon.http.api import ROUTES
from tests.daemon.api_serving import Tenant, site
from tests.daemon.browser import Browser

TOKEN = "document.querySelector('#token')"
SAID_OF_TOKEN = "document.querySelector('#login output')"


@pytest.fixture(scope="module")
def tenant() -> Tenant:
    found = site().tenant()
    found.handler("shout", "return payload.upper()")
    return found


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def page(chromium: Browser, tenant: Tenant) -> Iterator[Browser]:
    """The page as it is when it is opened; whatever is done there, nobody but the daemon is asked for anything."""
    chromium.requested.clear()
    chromium.complaints.clear()
    assert chromium.open(f"{tenant.daemon.address}/docs") == 200
    yield chromium
    assert [url for url in chromium.requested if not url.startswith(f"{tenant.daemon.address}/")] == []


def enter_token(page: Browser, token: str) -> str:
    """What the page says about the token."""
    page.enter(TOKEN, token)
    page.click("document.querySelector('#login button')")
    return str(page.eventually(f"{SAID_OF_TOKEN}.textContent"))


def tried(page: Browser, method: str, path: str, **fields: str) -> tuple[str, str]:
    """The status line and the text that are shown after a route was opened, filled in and sent."""
    form = f"document.querySelector('[data-method={method}][data-path=\"{path}\"]')"
    page.click(f"{form}.closest('details').querySelector('summary')")
    for name, value in fields.items():
        page.enter(f"{form}.elements['{name}']", value)
    page.click(f"{form}.querySelector('button')")
    page.eventually(f"!{form}.querySelector('pre').hidden")
    status, text = page.evaluate(f"[{form}.querySelector('output').textContent, {form}.querySelector('pre').innerText]")
    return status, text


def test_it_opens_without_a_token_and_shows_every_route(page: Browser, tenant: Tenant) -> None:
    assert page.evaluate("document.querySelectorAll('details summary').length") == len(ROUTES)
    assert page.evaluate("getComputedStyle(document.querySelector('header')).position") == "sticky", "its style is used"
    assert page.requested == [f"{tenant.daemon.address}/docs"]
    assert page.complaints == []
    assert tried(page, "GET", "/health") == ("200 OK", '{\n  "status": "ok"\n}')


def test_a_call_is_made_with_the_token_and_its_reply_is_shown(page: Browser, tenant: Tenant) -> None:
    assert enter_token(page, f" {tenant.token} ") == f"This is a token of {tenant.name}."
    status, text = tried(page, "POST", "/{client}/job/{type}/add", type="shout", priority="7", body="hello")
    assert status == "200 OK", text
    (job_id,) = json.loads(text)["ids"]
    assert tenant.job(job_id)["priority"] == 7
    status, text = tried(page, "GET", "/v1/{client}/jobs/{id}/result", id=job_id, wait="30")
    assert (status, text) == ("200 OK, x-hipq-code: ok, x-hipq-exitcode: 200", "HELLO")
    assert page.complaints == []
    assert not any(tenant.token in url for url in page.requested)


def test_a_wrong_token_is_told_clearly(page: Browser, tenant: Tenant) -> None:
    assert enter_token(page, "x" * 40) == "This daemon does not know this token."
    assert page.evaluate(f"getComputedStyle({SAID_OF_TOKEN}).color") == "rgb(192, 38, 38)"
    status, text = tried(page, "GET", "/v1/{client}/jobs", client=tenant.name)
    assert status == "401 Unauthorized"
    assert "this needs a token that is good" in json.loads(text)["error"]


def test_a_route_is_not_called_while_a_part_of_its_path_is_missing(page: Browser, tenant: Tenant) -> None:
    form = "document.querySelector('[data-path=\"/v1/{client}/jobs/{id}/why\"]')"
    page.click(f"{form}.closest('details').querySelector('summary')")
    page.click(f"{form}.querySelector('button')")
    assert page.evaluate(f"{form}.querySelector(':invalid').name") == "client"
    assert page.requested == [f"{tenant.daemon.address}/docs"]


def test_the_browser_lets_the_page_ask_nobody_else(chromium: Browser, tenant: Tenant) -> None:
    chromium.open(f"{tenant.daemon.address}/docs")
    refused = chromium.evaluate("""new Promise(done => {
        addEventListener("securitypolicyviolation", event => done([event.violatedDirective, event.blockedURI]));
        fetch("http://127.0.0.1:9/elsewhere").catch(() => {});
    })""")
    assert refused == ["connect-src", "http://127.0.0.1:9/elsewhere"]
