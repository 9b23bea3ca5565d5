"""Somebody in front of a browser, who looks at a busy shop and clicks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hipq.dashboard import asgi
from hipq.dashboard.application import Dashboard
from tests.daemon.browser import Browser
from tests.dashboard.busy_shop import BusyShop, busy_shop
from tests.dashboard.looks import LIGHT, put_on
from tests.dashboard.serving import Served
from tests.dashboard.visiting import SECRETS, TOKENS
from tests.databases import fresh


class Person:
    """What pages complain of, and whom else they ask for something, is told by `complaints`."""

    def __init__(self, browser: Browser, shop: BusyShop, dashboard: Dashboard, address: str) -> None:
        self.browser, self.shop, self.dashboard, self.address = browser, shop, dashboard, address
        self.app = shop.app

    def go(self, path: str) -> None:
        status = self.browser.open(f"{self.address}{path}")
        assert status == 200, (path, status)

    def log_in(self) -> None:
        self.browser.enter("document.querySelector('#token')", SECRETS["ada"])
        self.press("Log in")

    @property
    def path(self) -> str:
        return str(self.browser.evaluate("location.pathname"))

    def see(self, selector: str) -> str:
        """The text of an element."""
        return str(self.browser.evaluate(f"document.querySelector({selector!r}).innerText"))

    def press(self, name: str, within: str = "body") -> None:
        """Click a button or a link with this text that leads to another page, and wait for that."""
        self.browser.evaluate("window.isLeft = true")
        self.browser.click(_named(name, within))
        self.browser.eventually("!window.isLeft && document.readyState == 'complete'")

    def unfold(self, name: str, within: str = "body") -> None:
        self.browser.click(_named(name, within))

    def check(self, selector: str) -> None:
        self.browser.click(f"document.querySelector({selector!r})")

    def write(self, field: str, text: str, within: str = "main") -> None:
        self.browser.enter(f"document.querySelector(`{within} [name={field}]`)", text)

    def complaints(self) -> list[str]:
        found = [one for one in self.browser.complaints if "Autofocus" not in one]  # it clicks before that is done
        own = (f"{self.address}/", "data:image/svg+xml")  # the browser's own icons of fields are data
        found += [url for url in self.browser.requested if not url.startswith(own)]
        self.browser.complaints.clear()
        self.browser.requested.clear()
        return found


def _named(name: str, within: str) -> str:
    return f"""[...document.querySelectorAll("{within} :is(button, a, summary)")].find(
        one => one.textContent.trim() === {name!r} && one.checkVisibility())"""


@contextmanager
def person(store: str, folder: Path) -> Iterator[Person]:
    """Logged in as an admin, at a shop of its own on either store."""
    with fresh(store, folder / "shop.db") as url, _person(url, folder) as found:
        yield found


@contextmanager
def _person(url: str, folder: Path) -> Iterator[Person]:
    browser = Browser(folder / "browser")
    with busy_shop(url) as shop:
        dashboard = asgi(shop.app, tokens=TOKENS, mask=["card"])
        dashboard.site.board.judgement.read()
        served = Served(dashboard)
        put_on(browser, LIGHT)
        try:
            found = Person(browser, shop, dashboard, served.address)
            found.go("/")
            found.log_in()
            yield found
        finally:
            browser.close()
            dashboard.stop()
            served.stop()
