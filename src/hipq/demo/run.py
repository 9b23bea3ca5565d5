"""One run: the shop, its engine in this thread, the bank in another process, and a view."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from hipq import HipqError
from hipq.benchmark.interruption import Interruption
from hipq.demo.exchange import Reception, bank
from hipq.demo.news import News
from hipq.demo.shop import LIMIT, Shop
from hipq.demo.story import Story
from hipq.demo.summary import DemoFacts, gathered
from hipq.demo.tally import Tally

PACE: Final = 23.0
"""Seconds of a run at a pace of 1."""
_HANDS: Final = 8
_LEASE: Final = 60.0
"""Seconds of the lease: a laptop that is closed for a moment must not be taken for a crash."""

AnyView = Callable[[Callable[[], None]], AbstractContextManager[object]]
"""Makes the view; its argument is called when nobody watches any more."""


class Run:
    def __init__(self, file: Path, seconds: float) -> None:
        self.seconds, self.took = seconds, 0.0
        self.shop = Shop(file, seconds / PACE)
        self.tally = Tally(self.shop.app.events)
        self.tally.limit(self.shop.payments.name, LIMIT)
        self.story = Story(self.shop, self.tally, seconds / PACE)
        self.news = News(self.shop.app.events)

    def play(self, view: AnyView, interruption: Interruption) -> DemoFacts:
        """Run from the first job to the last answer, or until interrupted; returns what was counted."""
        began = time.monotonic()
        engine = self.shop.app.engine(
            concurrency=_HANDS, lease=_LEASE
        )  # first, because it forks, and no thread may exist then
        try:
            self.story.prologue()
            with self._reception() as reception, bank(reception.port, self.seconds / PACE) as teller:
                self.shop.bank = teller
                with view(engine.stop), self.story.playing(teller, engine.stop):
                    interruption.engine = engine
                    interruption.heed()
                    engine.run()
                if self.story.interrupted:
                    self.story.ledger = teller.ledger
        finally:
            engine.executor.close()
        if engine.unfit:
            raise HipqError(f"the engine gave up: {engine.unfit}")
        if self.story.trouble:
            raise self.story.trouble
        self.took = time.monotonic() - began
        return gathered(self.shop, self.story, self.tally, reception)

    def _reception(self) -> Reception:
        try:
            return Reception(self.shop.charge)
        except OSError as error:
            raise HipqError(f"the pretend bank needs a port on 127.0.0.1 to call back: {error.strerror}") from None
