"""The shop of the demo: its queues, its limits and its job types. An application like a user's own."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hipq import Answer, Failed, Hipq, Job, Ok, Wait, backoff, fixed, limit, share, window
from hipq.demo.bank import ANSWER_WITHIN, ATTEMPTS
from hipq.job.when import SECOND
from hipq.stores.clock import SystemClock

if TYPE_CHECKING:
    from hipq.demo.exchange import Teller

LIMIT: Final = 20
SHARES: Final = {"north": 50, "south": 30, "islands": 20}
CAPS: Final = {"all": LIMIT} | {region: LIMIT * percent // 100 for region, percent in SHARES.items()}
"""How many requests may be open at the bank at a time, in all and by region."""
MAILS: Final = 4
OPENS: Final = 10.0
"""Seconds after the start at which the window of the reports opens, at a pace of 1."""
LENGTH: Final = timedelta(minutes=10)
_MINUTE: Final = 60 * SECOND


class SlowClock(SystemClock):
    """A clock that is up to a minute slow, so that a minute begins `until_minute` seconds after the start: windows
    are whole minutes, and nobody wants to wait for the next one."""

    def __init__(self, until_minute: float) -> None:
        wanted = super().now() + round(until_minute * SECOND)
        self.slow = wanted % _MINUTE
        self.minute = wanted - self.slow
        """When the minute begins, in microseconds of this clock."""

    def now(self) -> int:
        return super().now() - self.slow


class Shop:
    """The shop. A `pace` of 1 is a demo of half a minute: all times are multiples of it."""

    def __init__(self, file: Path, pace: float) -> None:
        self.clock = SlowClock(OPENS * pace)
        self.opens = datetime.fromtimestamp(self.clock.minute / SECOND, UTC)
        self.bank: Teller | None = None
        """The bank, once it is open."""
        self.app = Hipq("demo", f"sqlite:///{file}", clock=self.clock)
        self._payments(pace)
        self._mails(pace)
        self._office(pace)

    def count(self, phase: str) -> int:
        """How many jobs are in this phase."""
        return sum(self.app.jobs.count(queue.name, phase=phase) for queue in self.app.queues)

    @property
    def live(self) -> int:
        """How many jobs have not ended."""
        return sum(self.app.jobs.count(queue.name, live=True) for queue in self.app.queues)

    @property
    def held(self) -> dict[str, int]:
        """Thousandths of units of the limits of payments that are in use, by region."""
        return self.app.store.limits(self.payments.number).held

    def _payments(self, pace: float) -> None:
        self.payments = self.app.queue(
            "payments", order="priority", limits=[limit(LIMIT), share(SHARES)], lane_by=lambda job: job.data["region"]
        )

        @self.payments.job(retry=backoff(ATTEMPTS, base=0.6 * pace), fence="attempt")
        def charge(job: Job[Any]) -> Wait:
            """Ask the bank for money. Its answer arrives later, by another way."""
            assert self.bank is not None
            self.bank.request(job.key, job.attempt, job.data["region"], job.data["number"])
            return Wait(timeout=ANSWER_WITHIN * pace)

        @charge.answered
        def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
            if answer.data["status"] != "paid":
                return Failed(f"the bank says: {answer.data['status']}")
            # saved with this success, or not at all
            job.enqueue(self.receipt, {"order": job.data["number"]}, key=job.key)
            return Ok(answer.data)

        @charge.cancelled
        def call_off(job: Job[Any]) -> None:
            """Tell the bank that nobody waits any more."""
            assert self.bank is not None
            self.bank.call_off(job.key, job.attempt)

        @self.payments.job(critical=True)
        def freeze(job: Job[Any]) -> str:
            """Freeze a stolen card, which cannot wait for a free slot."""
            return f"card {job.data['card']} is frozen"

        self.charge, self.freeze = charge, freeze

    def _mails(self, pace: float) -> None:
        self.mails = self.app.queue("mails", throttle_limit=MAILS)

        @self.mails.job
        async def receipt(job: Job[Any]) -> dict[str, Any]:
            await asyncio.sleep(0.1 * pace)  # a mail server takes its time
            return {"mailed": job.data["order"]}

        self.receipt = receipt

    def _office(self, pace: float) -> None:
        self.office = self.app.queue("office")
        night = window(self.opens.strftime("%H:%M"), (self.opens + LENGTH).strftime("%H:%M"))

        @self.office.job(windows=[night])
        def report(job: Job[Any]) -> str:
            return f"report on {job.data['about']}"

        @self.office.job
        def audit(_job: Job[Any]) -> None:
            """Fail for good: this job can never succeed."""
            raise Failed("the books of 1998 are lost")

        @self.office.job(process=True, retry=fixed(0.5 * pace))
        def reconcile(job: Job[Any]) -> str:
            """Kill the process, the first time."""
            if job.attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return f"in process {os.getpid()}"

        @self.office.job
        def newsletter(_job: Job[Any]) -> str:
            return "sent"  # it is cancelled before its time

        self.report, self.audit, self.reconcile, self.newsletter = report, audit, reconcile, newsletter
