"""`python -m tests.dashboard.pictures` takes the pictures of docs/dashboard.md and README.md anew."""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hipq.dashboard import asgi
from hipq.job.when import SECOND
from hipq.waiter.poller_notes import PollerNote
from tests.brokers.aws import CREDENTIALS, REGION, aws_endpoint
from tests.daemon.browser import Browser
from tests.dashboard.looks import DARK, LIGHT, PHONE, put_on
from tests.dashboard.person import person
from tests.dashboard.serving import Served
from tests.waiter.cloud import HOUR, Cloud, message

FOLDER: Final = Path(__file__).parents[2] / "docs/images"
DAYS: Final = 24 * HOUR
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
            with waiter() as address:
                put_on(ada.browser, LIGHT)
                assert ada.browser.open(f"{address}/waiter") == 200
                _keep("waiter", ada.browser)
    finally:
        shutil.rmtree(shop)


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
