"""A shop after an hour of work, with all in it that a page can show: for tests in a browser, and for pictures."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from hipq import Failed, Hipq, Job, Wait, backoff, limit, per_lane, rate, share, window
from hipq.answers.reports import Report, write_report
from hipq.job.progress import Report as Progress
from hipq.job.when import SECOND
from hipq.limits.rules import AnyLimit
from hipq.stores.claims import Claim
from hipq.stores.values import CRONS
from hipq.testing.clock import HandClock
from hipq.version import __version__

MINUTES: Final = 50
REGIONS: Final = ("east", "north", "west")


class BusyShop:
    """Its clock stands still once the hour is over; `ids` are those of its jobs by key."""

    def __init__(self, url: str) -> None:
        self.clock = HandClock(time.time_ns() // 1000 - MINUTES * 60 * SECOND)
        self.app = Hipq("shop", url, clock=self.clock)
        self.chance = random.Random(7)
        self.ids: dict[str, int] = {}
        self._declare()
        self.app.migrate()

    def _declare(self) -> None:
        app, clock = self.app, self.clock
        limits: list[AnyLimit] = [limit(100), share({"east": 40, "north": 30, "west": 30}), rate(5000, per=1)]
        orders = app.queue("orders", limits=limits, lane_by=lambda job: job.data.get("region", "east"))
        mails = app.queue("mails", limits=[per_lane(5)])
        reports = app.queue("reports")

        @orders.job(timeout=3 * 3600, retry=backoff(attempts=5))
        def charge(_job: Job[Any]) -> Wait:
            clock.advance(seconds=self.chance.random() / 10)
            return Wait()

        @orders.job(retry=None)
        def refund(job: Job[Any]) -> Any:
            clock.advance(seconds=self.chance.random() * 2)
            if job.data["amount"] < 30:
                for copy in ("customer", "ledger"):
                    job.enqueue(receipt, {"to": f"{copy}@example.com"}, key=f"{job.key}-{copy}")
            if job.data["amount"] > 90:
                raise ConnectionError("bank.example refused the connection: [Errno 111]")
            return Failed("the card has expired") if job.data["amount"] > 80 else {"refunded": job.data["amount"]}

        @orders.job(retry=backoff(attempts=5))
        def settle(_job: Job[Any]) -> None:
            raise TimeoutError("the ledger did not answer in 5 s")

        mails.job("newsletter", windows=[window("22:00", "05:00", tz="Europe/Rome")])(lambda _: None)
        receipt = mails.job("receipt")(lambda job: {"mailed to": job.data["to"]})
        daily = reports.job("daily")(lambda _: None)
        daily.cron("0 6 * * *", {"region": "east"}, tz="Europe/Rome")
        daily.cron("*/15 * * * *", {"region": "north"}, name="quarterly")
        orders.request("pay", to="https://bank.example/pay/{key}", answers="kafka://payments-in", key="ref")

    # -- an hour of work ---------------------------------------------------------------------------------------------
    def work(self) -> None:
        for minute in range(MINUTES):
            self._add(minute)
            self.app.run(until_empty=True)
            self._answer(minute)
            self.clock.advance(seconds=max(0, 60 - self.clock.now() // SECOND % 60))
        self.app.run(until_empty=True)
        self._end()
        self._strangers()
        self._still_at_work()

    def _add(self, minute: int) -> None:
        for n in range(1 + self.chance.randrange(4) + minute // 12):
            data = {"amount": self.chance.randrange(1, 400), "currency": "EUR", "customer": f"c-{n}{minute}",
                    "region": self.chance.choice(REGIONS), "card": "4111 1111 1111 1111"}  # fmt: skip
            self._enqueue("orders", "charge", data, f"order-{minute}-{n}")
        self._enqueue("orders", "refund", {"amount": self.chance.randrange(100)}, f"refund-{minute}")
        for n in range(self.chance.randrange(3)):
            self._enqueue("mails", "receipt", {"to": f"ann{n}@example.com"}, f"receipt-{minute}-{n}")

    def _enqueue(self, queue: str, job_type: str, data: Any, key: str, **more: Any) -> int:
        self.ids[key] = int(self.app.declared.find(queue).enqueue(job_type, data, key=key, **more))
        return self.ids[key]

    def _answer(self, minute: int) -> None:
        """The bank answers most of what was asked five minutes ago."""
        for key in [one for one in self.ids if one.startswith(f"order-{minute - 5}-")]:
            if self.chance.random() < 0.8:
                self.app.answer("orders", "charge", key, {"status": "paid", "reference": f"B-{self.ids[key]}"})

    def _end(self) -> None:
        """Jobs for what comes seldom: an error with its traceback, a retry, a time far ahead, a cancellation."""
        self._enqueue("orders", "refund", {"amount": 95, "region": "east"}, "refund-broken")
        self._enqueue("orders", "settle", {"day": "2027-01-14"}, "settle-14")
        self._enqueue("orders", "charge", {"amount": 25, "region": "west"}, "order-waiting")
        self.app.run(until_empty=True)
        for n in range(5):
            self._enqueue("orders", "charge", {"amount": n, "region": "west"}, f"later-{n}", delay=3600 * n + 600)
        for n in range(6):
            self._enqueue("mails", "newsletter", {"to": f"bob{n}@example.com"}, f"newsletter-{n}")
        self.app.jobs.get(self.ids["later-4"]).cancel("the customer has changed her mind")

    def _strangers(self) -> None:
        """Answers that no job uses, and a listener that is behind."""
        answer: Callable[..., Any] = self.app.answer
        for n in range(4):
            answer("orders", "charge", f"order-x{n}", {"status": "paid", "note": "<b>not ours?</b>"})
        for key in [one for one in self.ids if one.startswith("order-1-")]:
            answer("orders", "charge", key, {"status": "paid", "reference": f"B-{self.ids[key]}"})
            answer("orders", "charge", key, {"status": "refused"})
        told = Report("kafka://payments-in", "h1", {"matched": 70, "duplicate": 10, "conflict": 4}, 1204, "", False)
        write_report(self.app.store, "shop", "kafka://payments-in orders.pay", told)

    def _still_at_work(self) -> None:
        """An engine that is in the middle of it."""
        store, orders = self.app.store, self.app.declared.find("orders")
        since = store.now() - 2000 * SECOND
        serves = {str(queue.number): [one.name for one in queue.job_types] for queue in self.app.queues}
        serves[CRONS] = [f"{self.app.declared.find('reports').number}/{name}" for name in ("daily", "quarterly")]
        engine = store.take_lease(24 * 3600, "web-1:4242", json.dumps(serves), __version__, since)
        for n in range(3):
            self._enqueue("orders", "refund", {"amount": 7, "region": "east"}, f"refund-now-{n}")
        won = store.turn(engine, [], [Claim(orders.number, ("refund",), 3)], store.now()).won
        store.report([Progress(row.id, row.token, row.attempt, 0.4, "asks the bank") for row in won], store.now())
        for n in range(5):
            self._enqueue("mails", "receipt", {"to": f"zoe{n}@example.com"}, f"receipt-next-{n}")


@contextmanager
def busy_shop(url: str) -> Iterator[BusyShop]:
    shop = BusyShop(url)
    shop.work()
    yield shop
    shop.app.close()
