"""One run: the shop, its engine in this thread, the bank in another process, a view, and the story in a thread.

The story adds most orders at once and the others one after the other, with some incidents on the way. It reads the
bank's ledger regularly, and stops the engine when every job has ended and every answer has arrived.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from hipq import HipqError
from hipq.benchmark.interruption import Interruption
from hipq.demo.exchange import Reception, Teller, bank
from hipq.demo.news import News
from hipq.demo.shop import LENGTH, Shop
from hipq.demo.summary import ORDERS, DemoFacts, gathered

PACE: Final = 23.0
"""Seconds of a run at a pace of 1."""
FIRST: Final = 120
"""Orders that exist when the engine starts."""
RUSH: Final = 16
"""The number of those that go before the others."""
AT_A_TIME: Final = 3
TICK: Final = 0.25
"""Seconds between later orders, and between looks into the ledger, at a pace of 1."""
REPORTS: Final = 6
FREEZES: Final = 12
FREEZE_EVERY: Final = 4
CANCELLED_AT: Final = 16
"""The tick at which a job is cancelled."""
REGIONS: Final = ("north", "south", "north", "islands", "north", "south", "islands", "north", "south")
_HANDS: Final = 8
_LEASE: Final = 60.0
"""Seconds of the lease: a laptop that is closed for a moment must not be taken for a crash."""

AnyView = Callable[[Callable[[], None]], AbstractContextManager[object]]
"""Makes the view; its argument is called when nobody watches any more."""


class Run:
    def __init__(self, file: Path, seconds: float) -> None:
        self.seconds, self.took, self._pace = seconds, 0.0, seconds / PACE
        self.shop = Shop(file, self._pace)
        self.news = News(self.shop.app.events)
        self.patience = self._pace * 120 + 60
        """Seconds after which a demo that has not ended is stuck."""
        self.ledger: dict[str, Any] = {}
        """The bank's last ledger."""
        self.ended = False
        """Whether every job has ended and every answer has arrived."""
        self.added: list[int] = []
        """The jobs that were added here, without those that handlers add."""
        self.rush: list[int] = []
        self.first: list[int] = []
        self.tomorrow = self.cancelled = 0
        self._over = threading.Event()
        self._trouble: Exception | None = None

    def play(self, view: AnyView, interruption: Interruption) -> DemoFacts:
        """Run from the first job to the last answer, or until interrupted; returns what was counted."""
        began = time.monotonic()
        engine = self.shop.app.engine(concurrency=_HANDS, lease=_LEASE)  # it forks: no thread may exist then
        try:
            self._prologue()
            with Reception(self.shop.charge) as reception, bank(reception.port, self._pace) as teller:
                self.shop.bank = teller
                with view(engine.stop), self._story(teller, engine.stop):
                    interruption.engine = engine
                    interruption.heed()
                    engine.run()
                if self._trouble:
                    raise self._trouble
                self.ledger = teller.ledger
        finally:
            engine.executor.close()
        if engine.unfit:
            raise HipqError(f"the engine gave up: {engine.unfit}")
        self.took = time.monotonic() - began
        return gathered(self, reception)

    def _prologue(self) -> None:
        """Add the jobs that exist when the engine starts."""
        shop = self.shop
        self.rush = self._charges(range(RUSH), priority=10)
        self.first = self._charges(range(RUSH, FIRST))
        self.added += shop.report.enqueue_many([{"about": f"day {number + 1}"} for number in range(REPORTS)])
        self.tomorrow = shop.report.enqueue({"about": "tomorrow"}, at=shop.opens + LENGTH + timedelta(minutes=1))
        self.cancelled = shop.newsletter.enqueue(delay=3600, key="newsletter")
        self.added += [
            shop.audit.enqueue(key="audit"), shop.reconcile.enqueue(key="reconcile"), self.tomorrow, self.cancelled,
        ]  # fmt: skip

    @contextmanager
    def _story(self, teller: Teller, then: Callable[[], None]) -> Iterator[None]:
        """Play the story during the block. When it has ended it calls `then`, whatever happened."""

        def play() -> None:
            try:
                self._tell(teller)
            except Exception as trouble:
                self._trouble = trouble
            finally:
                then()

        thread = threading.Thread(target=play, name="demo-story", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _tell(self, teller: Teller) -> None:
        began, tick, number = time.monotonic(), 0, FIRST
        while not self._over.wait(max(began + (tick + 1) * TICK * self._pace - time.monotonic(), 0.02)):
            tick += 1
            if number < ORDERS:
                self._charges(range(number, min(number + AT_A_TIME, ORDERS)))
                number += AT_A_TIME
            card, between = divmod(tick, FREEZE_EVERY)
            if card <= FREEZES and not between:
                self.added.append(self.shop.freeze.enqueue({"card": card, "region": "north"}))
            if tick == CANCELLED_AT:
                self.shop.app.cancel(self.cancelled, "nobody reads it")
            over = number >= ORDERS and self.shop.live == 1  # all but tomorrow's; looked at before the ledger
            self.ledger = teller.ledger
            if over and not self.ledger["unsent"]:
                self.ended = True
                return
            if time.monotonic() - began > self.patience:
                raise HipqError(f"the demo has not come to its end in {self.patience:.0f} s: some jobs are stuck")

    def _charges(self, numbers: range, priority: int = 100) -> list[int]:
        orders = [{"number": number, "region": REGIONS[number % len(REGIONS)]} for number in numbers]
        keys = [f"order-{number:03}" for number in numbers]
        ids = self.shop.charge.enqueue_many(orders, keys=keys, priority=priority)
        self.added += ids
        return [*ids]
