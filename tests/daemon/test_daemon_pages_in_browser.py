"""The pages that only a daemon has in a real browser, by day, by night and on a phone."""

from __future__ import annotations

from pathlib import Path

from hipq.daemon.dashboard.pages import pages_of
from tests.daemon.browser import Browser
from tests.daemon.busy_daemon import busy_daemon
from tests.dashboard.axe import faults_of
from tests.dashboard.looks import LOOKS, put_on


def test_every_page_of_a_daemon(tmp_path: Path) -> None:
    browser, wrong = Browser(tmp_path / "browser"), list[tuple[str, str, str]]()
    try:
        with busy_daemon(tmp_path) as found:
            assert {route.pattern for route in pages_of(found.daemon).routes} <= {*found.paths}
            for look in LOOKS:
                put_on(browser, look)
                for path in [path for some in found.paths.values() for path in some]:
                    assert browser.open(f"{found.address}{path}") == 200
                    wrong += [(look.name, path, one) for one in faults_of(browser, look)]
        assert wrong == []
        foreign = [url for url in browser.requested if not url.startswith((f"{found.address}/", "data:image/svg+xml"))]
        assert foreign == []
    finally:
        browser.close()
