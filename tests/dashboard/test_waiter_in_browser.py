"""The waiter's pages in a real browser, by day, by night and on a phone."""

from __future__ import annotations

from pathlib import Path

from hipq.dashboard import asgi
from hipq.waiter.poller_notes import PollerNote
from tests.daemon.browser import Browser
from tests.dashboard.axe import faults_of
from tests.dashboard.looks import LOOKS, put_on
from tests.dashboard.serving import Served
from tests.waiter.cloud import HOUR, Cloud, message
from tests.waiter.conftest import cloud

__all__ = ["cloud"]


def test_every_page_of_the_waiter(cloud: Cloud, tmp_path: Path) -> None:
    queue, waiter = cloud.with_table()
    cloud.fill(queue, [message(queue, '{"to": "ann"}', n * n * HOUR / 10 - 60, job_id=f"m-{n}") for n in range(60)])
    table, now = waiter.tables.of(queue), waiter.clock.now()
    assert table
    waiter.poller_notes.write(table, PollerNote("web-1:4242", now, 300, 12, 0, since=now))
    waiter.poller_notes.write(table, PollerNote("web-2:77", now, 300, 0, 3, f"queue {queue}: there is no such queue"))
    dashboard = asgi(waiter=waiter, authenticate=lambda _: "admin")
    served, browser, wrong = Served(dashboard), Browser(tmp_path / "browser"), list[tuple[str, str]]()
    try:
        for look in LOOKS:
            put_on(browser, look)
            for path in ("/waiter", f"/waiter/messages?table={queue}", f"/waiter/message?queue={queue}&id=m-7"):
                assert browser.open(f"{served.address}{path}") == 200
                wrong += [(path, one) for one in faults_of(browser, look)]
        assert wrong == []
        browser.click("document.querySelector('button.grave')")
        browser.eventually("location.pathname == '/waiter' && document.querySelector('.notice') !== null")
        assert browser.evaluate("document.querySelector('.notice').textContent").startswith("The message is deleted")
    finally:
        browser.close()
        dashboard.stop()
        served.stop()
