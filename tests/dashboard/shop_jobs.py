"""A shop whose jobs have come to many ends, on either store, with a clock that is turned by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hipq import Failed, Hipq, Job, Queue, Wait, backoff
from hipq.dashboard.site import Site
from hipq.testing.clock import HandClock
from tests.databases import fresh


def _charge(job: Job[Any]) -> Any:
    match job.key.partition("-")[0]:
        case "wait":
            return Wait()
        case "fail":
            return Failed("the card was refused")
        case "raise" | "again":
            raise ConnectionError(f"bank.example refused {job.key}\nand more")
        case _:
            return 1


@contextmanager
def shop(store: str, path: Path) -> Iterator[Site]:
    with fresh(store, path / "shop.db") as url:
        yield from _shop(url)


def _shop(url: str) -> Iterator[Site]:
    app = Hipq("shop", url, clock=HandClock())
    orders = app.queue("orders")
    orders.job("charge")(_charge)
    orders.job("refund")(_charge)
    app.queue("mails").job("send")(lambda _: None)
    app.migrate()
    yield Site([app], mask=["card"])
    app.close()


def queue(site: Site, name: str = "orders") -> Queue:
    return site.queue(name)


def filled(site: Site) -> dict[str, int]:
    """A job of each kind, the ids by key; a minute passes before each. Nothing is due afterwards but mail-1."""
    app, orders, mails = site.apps[0], queue(site), queue(site, "mails")
    clock = app.database.clock
    assert isinstance(clock, HandClock)
    ids: dict[str, int] = {}

    def add(key: str, *, job_type: str = "charge", data: Any = None, **options: Any) -> None:
        clock.advance(minutes=1)
        ids[key] = orders.enqueue(job_type, data, key=key, **options)

    add("ok-1", data={"customer": 17, "card": "4111", "a": {"b": "x"}, "items": [{"sku": "s-1"}]})
    add("ok-2", data={"customer": 171, "a": {"b": "y"}, "paid": True, "sum": 1.5}, lane="east")
    add("fail-1", data={"note": 'say "17" <b>'})
    add("raise-1", job_type="refund")
    add("again-1", retry=backoff(attempts=5))
    add("wait-1")
    app.run(until_empty=True)
    add("later-1", delay=3600, priority=5)
    add("later-2", delay=7200, lane="east")
    add("gone-1", delay=60)
    app.jobs.get(ids["gone-1"]).cancel("not wanted")
    clock.advance(minutes=1)
    ids["mail-1"] = mails.enqueue("send", {"to": "ann"}, key="mail-1")
    return ids
