"""What happens in the demo, and when: most orders at once, the others one after the other, and some things on the way.

It runs in a thread of its own beside the engine, looks into the bank's ledger now and then, and stops the engine when
every job has ended and every answer has come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from hipq import HipqError
from hipq.demo.shop import LENGTH, Shop
from hipq.demo.tally import Tally
from hipq.demo.teller import Teller

ORDERS: Final = 264
FIRST: Final = 120
"""Orders that are there when the engine starts."""
RUSH: Final = 16
"""Of those, the ones that go before the others."""
AT_A_TIME: Final = 3
TICK: Final = 0.25
"""Seconds between the orders that come later, and between looks into the ledger, at a pace of 1."""
MOMENT: Final = 2.0
"""Seconds in which a job that a handler added is told of, after its handler's success is."""
REPORTS: Final = 6
FREEZES: Final = 12
FREEZE_EVERY: Final = 4
CANCELLED_AT: Final = 16
"""In ticks, like the one before."""
REGIONS: Final = ("north", "south", "north", "islands", "north", "south", "islands", "north", "south")


class Story:
    def __init__(self, shop: Shop, tally: Tally, pace: float) -> None:
        self._shop, self._tally = shop, tally
        self._prefetch = pace
        self._over = threading.Event()
        self.patience = pace * 120 + 60
        """Seconds after which a demo that has not come to its end is stuck."""
        self.ledger: dict[str, Any] = {}
        """What the bank said last."""
        self.ended = False
        """Every job has ended, and every answer has come."""
        self.interrupted = False
        self.trouble: Exception | None = None
        self.added: list[int] = []
        """The jobs that were added here; those that handlers add are not among them."""
        self.tomorrow = self.cancelled = 0
        self._missed = 0.0
        self.rush: list[int] = []
        self.first: list[int] = []

    def prologue(self) -> None:
        """What is there when the engine starts."""
        shop = self._shop
        self.rush = self._charges(range(RUSH), priority=10)
        self.first = self._charges(range(RUSH, FIRST))
        abouts = [{"about": f"day {number + 1}"} for number in range(REPORTS)]
        self.added += shop.report.enqueue_many(abouts)
        self.tomorrow = shop.report.enqueue({"about": "tomorrow"}, at=shop.opens + LENGTH + timedelta(minutes=1))
        self.cancelled = shop.newsletter.enqueue(delay=3600, key="newsletter")
        self.added += [
            shop.audit.enqueue(key="audit"), shop.reconcile.enqueue(key="reconcile"), self.tomorrow, self.cancelled,
        ]  # fmt: skip

    @contextmanager
    def playing(self, bank: Teller, then: Callable[[], None]) -> Iterator[None]:
        """It is told meanwhile. When it has ended it does `then`, whatever happened; and nobody hears more of it than
        they want."""
        self._bank, self._then = bank, then
        thread = threading.Thread(target=self._guarded, name="demo-story", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self.interrupted = not self.ended and self.trouble is None

    def _guarded(self) -> None:
        try:
            self._tell()
        except Exception as trouble:
            self.trouble = trouble
        finally:
            self._then()

    def _tell(self) -> None:
        began, tick, number = time.monotonic(), 0, FIRST
        while not (number >= ORDERS and self._all_over()):
            if self._over.wait(max(began + (tick + 1) * TICK * self._prefetch - time.monotonic(), 0.02)):
                return
            tick += 1
            if number < ORDERS:
                self._charges(range(number, min(number + AT_A_TIME, ORDERS)))
                number += AT_A_TIME
            card, between = divmod(tick, FREEZE_EVERY)
            if card <= FREEZES and not between:
                self.added.append(self._shop.freeze.enqueue({"card": card, "region": "north"}))
            if tick == CANCELLED_AT:
                self._shop.app.cancel(self.cancelled, "nobody reads it")
            self.ledger = self._bank.ledger
            if time.monotonic() - began > self.patience:
                raise HipqError(f"the demo has not come to its end in {self.patience:.0f} s: some jobs are stuck")
        self.ended = True

    def _all_over(self) -> bool:
        """Every job has ended; and, asked after that, the bank has nothing more to send."""
        if not self._tally.all_final(self.added, self.tomorrow):
            return False
        self.ledger = self._bank.ledger
        if self.ledger["unsent"]:
            return False
        if self._tally.ended(self._shop.receipt.name) == self._tally.ended(self._shop.charge.name):
            return True
        self._missed = self._missed or time.monotonic()  # told of in a moment; if not, it is lost, and will be missed
        return time.monotonic() - self._missed > MOMENT

    def _charges(self, numbers: range, priority: int = 100) -> list[int]:
        orders = [{"number": number, "region": REGIONS[number % len(REGIONS)]} for number in numbers]
        keys = [f"order-{number:03}" for number in numbers]
        ids = self._shop.charge.enqueue_many(orders, keys=keys, priority=priority)
        self.added += ids
        return ids
