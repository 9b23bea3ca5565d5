"""Logging in with a real browser; and what pages of other sites can do to somebody who has."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from hipq import Hipq
from hipq.dashboard import asgi
from hipq.dashboard.application import Dashboard
from tests.daemon.browser import Browser
from tests.dashboard.test_same_site import with_action
from tests.dashboard.visiting import SECRETS, TOKENS

TOKEN = "document.querySelector('#token')"
THERE = "location.pathname + location.search"


@contextmanager
def serving(application: Any) -> Iterator[int]:
    """The port of a server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(application, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until = time.monotonic() + 30
        while not server.started:
            assert time.monotonic() < until
            time.sleep(0.01)
        try:
            yield listening.getsockname()[1]
        finally:
            if isinstance(application, Dashboard):
                application.stop()  # else the server waits for the streams of those who look
            server.should_exit = True
            thread.join(30)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    app = Hipq("shop", "sqlite://")
    app.queue("orders")
    yield asgi(app, tokens=TOKENS)
    app.close()


@pytest.fixture
def port(dashboard: Dashboard) -> Iterator[int]:
    with serving(dashboard) as port:
        yield port


def test_a_person_logs_in_and_comes_where_the_link_led(chromium: Browser, port: int) -> None:
    chromium.complaints.clear()
    assert chromium.open(f"http://127.0.0.1:{port}/jobs?state=error") == 200
    assert chromium.evaluate(THERE) == "/login?next=%2Fjobs%3Fstate%3Derror"
    assert chromium.complaints == []
    chromium.enter(TOKEN, "wrong" * 5)
    chromium.click("document.querySelector('button')")
    chromium.eventually("document.querySelector('[role=alert]')?.textContent == 'nobody has this token'")
    chromium.enter(TOKEN, SECRETS["otto"])
    chromium.click("document.querySelector('button')")
    chromium.eventually(f"{THERE} == '/jobs?state=error' && document.readyState == 'complete'")
    assert chromium.evaluate("document.cookie") == ""  # no script sees them
    assert chromium.open(f"http://127.0.0.1:{port}/audit") == 403


def test_a_printed_link_logs_in_and_leaves_no_token_in_the_address_bar(chromium: Browser, port: int) -> None:
    assert chromium.open(f"http://127.0.0.1:{port}/login?token={SECRETS['ada']}&next=/audit") == 200
    assert chromium.evaluate("location.href") == f"http://127.0.0.1:{port}/audit"
    assert chromium.evaluate("document.referrer") == ""


@pytest.mark.parametrize(
    ("policy", "said"), [("", "nothing was done"), ("sandbox allow-forms allow-scripts", "log in, or send the header")]
)
def test_a_page_of_another_origin_changes_nothing(
    chromium: Browser, dashboard: Dashboard, port: int, policy: str, said: str
) -> None:
    """Of the same host with another port: browsers send our cookies along. And of no origin: they do not."""
    done = with_action(dashboard)
    chromium.complaints.clear()
    chromium.open(f"http://127.0.0.1:{port}/login?token={SECRETS['otto']}&next=/jobs")
    csrf = chromium.evaluate("document.querySelector('meta[name=csrf]').content")
    assert len(csrf) == 43
    target = f"http://127.0.0.1:{port}"

    async def evil(_scope: Any, _receive: Any, send: Any) -> None:
        page = (
            f'<form method="post" action="{target}/jobs/7/frob"><input name="csrf" value="{csrf}"><button>win</button>'
            f'</form><a href="{target}/login?token={SECRETS["ada"]}">look</a><iframe src="{target}/jobs"></iframe>'
        )
        headers = [(b"content-type", b"text/html"), (b"content-security-policy", policy.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": page.encode()})

    with serving(evil) as other:
        chromium.open(f"http://127.0.0.1:{other}/")
        assert "frame-ancestors" in " ".join(chromium.complaints)
        chromium.click("document.querySelector('button')")
        chromium.eventually(f"document.body?.innerText.includes('{said}')")
        assert done == []
        chromium.open(f"http://127.0.0.1:{other}/")
        chromium.click("document.querySelector('a')")
        chromium.eventually("document.body?.innerText.includes('does not log you in')")
        assert chromium.open(f"{target}/audit") == 403  # it is otto still
        assert chromium.open(f"{target}/jobs") == 200
        chromium.evaluate(
            f"fetch('/jobs/7/frob', {{method: 'POST', headers: {{'x-csrf': '{csrf}'}}}}).then(got => got.status)"
        )
    assert done == ["otto"]  # a page of its own may
