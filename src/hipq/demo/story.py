"""The script of the demo: most orders are added at once, the others one after the other, with some incidents on the
way.

It runs in a thread of its own beside the engine, reads the bank's ledger regularly, and stops the engine when every job
has ended and every answer has arrived.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from hipq import HipqError
from hipq.demo.exchange import Teller
from hipq.demo.shop import LENGTH, Shop
from hipq.demo.tally import Tally

ORDERS: Final = 264
FIRST: Final = 120
"""Orders that exist when the engine starts."""
RUSH: Final = 16
"""The number of those that go before the others."""
AT_A_TIME: Final = 3
TICK: Final = 0.25
"""Seconds between later orders, and between looks into the ledger, at a pace of 1."""
MOMENT: Final = 2.0
"""Seconds within which a job added by a handler is announced after its handler's success."""
REPORTS: Final = 6
FREEZES: Final = 12
FREEZE_EVERY: Final = 4
CANCELLED_AT: Final = 16
"""The tick at which a job is cancelled."""
REGIONS: Final = ("north", "south", "north", "islands", "north", "south", "islands", "north", "south")


class Story:
    def __init__(self, shop: Shop, tally: Tally, pace: float) -> None:
        self._shop, self._tally = shop, tally
        self._pace = pace
        self._over = threading.Event()
        self.patience = pace * 120 + 60
        """Seconds after which a demo that has not ended is stuck."""
        self.ledger: dict[str, Any] = {}
        """The bank's last ledger."""
        self.ended = False
        """Whether every job has ended and every answer has arrived."""
        self.interrupted = False
        self.trouble: Exception | None = None
        self.added: list[int] = []
        """The jobs that were added here, without those that handlers add."""
        self.tomorrow = self.cancelled = 0
        self._missed = 0.0
        self.rush: list[int] = []
        self.first: list[int] = []

    def prologue(self) -> None:
        """Add the jobs that exist when the engine starts."""
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
        """Play the story during the block. When it has ended it calls `then`, whatever happened; an error is raised
        later."""
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
            if self._over.wait(max(began + (tick + 1) * TICK * self._pace - time.monotonic(), 0.02)):
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
        """Whether every job has ended and, asked after that, the bank has nothing more to send."""
        if not self._tally.all_final(self.added, self.tomorrow):
            return False
        self.ledger = self._bank.ledger
        if self.ledger["unsent"]:
            return False
        if self._tally.ended(self._shop.receipt.name) == self._tally.ended(self._shop.charge.name):
            return True
        self._missed = self._missed or time.monotonic()  # announced in a moment; if not, it is lost, and will be missed
        return time.monotonic() - self._missed > MOMENT

    def _charges(self, numbers: range, priority: int = 100) -> list[int]:
        orders = [{"number": number, "region": REGIONS[number % len(REGIONS)]} for number in numbers]
        keys = [f"order-{number:03}" for number in numbers]
        ids = self._shop.charge.enqueue_many(orders, keys=keys, priority=priority)
        self.added += ids
        return [*ids]
