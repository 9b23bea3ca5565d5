"""`python -m tests.dashboard.pictures` takes the pictures of docs/ and README.md anew: those that the text shows, and
each page by day, by night and on a phone (docs/dashboard-pages.md)."""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
import tempfile
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hipq.dashboard import asgi
from hipq.job.when import SECOND
from hipq.waiter.poller_notes import PollerNote
from tests.brokers.aws import CREDENTIALS, REGION, aws_endpoint
from tests.daemon.browser import Browser
from tests.daemon.busy_daemon import busy_daemon
from tests.dashboard.looks import DARK, LIGHT, LOOKS, PHONE, put_on
from tests.dashboard.person import person
from tests.dashboard.serving import Served
from tests.dashboard.test_every_page_in_browser import paths
from tests.waiter.cloud import HOUR, Cloud, message

FOLDER: Final = Path(__file__).parents[2] / "docs/images"
PAGES: Final = FOLDER / "pages"
DAYS: Final = 24 * HOUR
TITLE: Final = """# Every page of the dashboard

What each page looks like, by day, by night and on a phone. [The dashboard](dashboard.md) says what they are for.
`python -m tests.dashboard.pictures` takes these pictures.
"""
COLUMNS: Final = "| by day | by night | on a phone |\n| --- | --- | --- |"
WITHOUT_PATHS: Final = f"""
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode())
        texts.currentNode.data = texts.currentNode.data.replaceAll("{FOLDER.parents[1]}", "/srv/shop");
"""
"""A traceback has paths of the machine on which the pictures are taken."""
MOST: Final = 150_000
"""Bytes of a picture."""


def take() -> None:
    shop = Path(tempfile.gettempdir(), "shop")  # pictures show this path
    shop.mkdir()
    try:
        with person("sqlite", shop) as ada:
            views = [
                ("overview", LIGHT, "/"),
                ("job", LIGHT, f"/jobs/{ada.shop.ids['order-1-0']}"),
                ("jobs", DARK, "/jobs?queue=orders"),
                ("phone", PHONE, "/"),
            ]
            for name, look, path in views:
                put_on(ada.browser, look)
                ada.go(path)
                _keep(name, ada.browser)
            gallery = Gallery(ada.browser)
            gallery.take(ada.address, paths(ada))
            with waiter() as address:
                put_on(ada.browser, LIGHT)
                assert ada.browser.open(f"{address}/waiter") == 200
                _keep("waiter", ada.browser)
                messages = "/waiter/messages?table=mailers"
                gallery.take(address, {"/waiter": ["/waiter"], "/waiter/messages": [messages]})
            with busy_daemon(shop) as found:
                gallery.take(found.address, found.paths)
            gallery.write()
    finally:
        shutil.rmtree(shop)


class Gallery:
    """Each page in each look. WebP: a fifth of what PNG takes."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._lines = [TITLE]
        shutil.rmtree(PAGES, ignore_errors=True)
        PAGES.mkdir()

    def take(self, address: str, paths: Mapping[str, Sequence[str]]) -> None:
        for pattern, faces in paths.items():
            name = re.sub("[^a-z]+", "-", pattern).strip("-") or "overview"
            self._lines.append(f"## `{pattern}`\n")
            for number, path in enumerate(faces, 1):
                self._take(f"{address}{path}", f"{name}-{number}")

    def _take(self, url: str, name: str) -> None:
        pictures = []
        for look in LOOKS:
            put_on(self._browser, look)
            assert self._browser.open(url) == 200
            self._browser.evaluate(WITHOUT_PATHS)
            taken = self._browser.ask("Page.captureScreenshot", format="webp", quality=50)["data"]
            (PAGES / f"{name}-{look.name}.webp").write_bytes(b64decode(taken))
            pictures.append(f"![{look.name}](images/pages/{name}-{look.name}.webp)")
        title = self._browser.evaluate("document.title").removesuffix(" · hipq")
        self._lines.append(f"{title}:\n\n{COLUMNS}\n| {' | '.join(pictures)} |\n")

    def write(self) -> None:
        (FOLDER.parent / "dashboard-pages.md").write_text("\n".join(self._lines))


@contextmanager
def waiter() -> Iterator[str]:
    """The waiter's page alone, with a fortnight of messages."""
    os.environ.update({**CREDENTIALS, "AWS_DEFAULT_REGION": REGION})
    cloud, chance = Cloud(aws_endpoint()), random.Random(7)
    found = cloud.waiter("mailers", "reports.fifo")
    for queue in found.queues:
        found.tables.create(queue)
    ahead = [*(chance.expovariate(1 / (40 * HOUR)) for _ in range(2_000)), *(DAYS * n for n in range(20, 90))]
    cloud.fill("mailers", [message("mailers", '{"to": "ann"}', 60 + one) for one in ahead])
    cloud.fill("reports.fifo", [message("reports.fifo", "daily", DAYS * n + 300, group="a") for n in range(40)])
    table, now = found.tables.of("mailers"), found.clock.now()
    assert table
    for name, sent in (("web-1:4242", 118), ("web-2:4077", 96)):
        since = now - round(3 * DAYS * SECOND)
        found.poller_notes.write(table, PollerNote(name, now - sent * SECOND, 300, sent, 0, since=since))
    served = Served(asgi(waiter=found, authenticate=lambda _: "admin"))
    try:
        yield served.address
    finally:
        served.stop()


def _keep(name: str, browser: Browser) -> None:
    picture = browser.picture()
    assert len(picture) <= MOST, f"{name} has {len(picture):,} bytes"
    (FOLDER / f"dashboard-{name}.png").write_bytes(picture)


if __name__ == "__main__":
    logging.disable()
    FOLDER.mkdir(exist_ok=True)
    take()
