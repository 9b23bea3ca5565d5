"""Whether all counts agree: the jobs the shop added, hipq's database, its events, and the bank's ledger.

Every check compares what different parties counted on their own. A check that fails is a bug, in hipq or here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any, NamedTuple

from hipq import Job
from hipq.demo.exchange import Reception
from hipq.demo.shop import CAPS, SHARES, Shop
from hipq.demo.story import ORDERS, Story
from hipq.demo.tally import WORDS, Tally
from hipq.job.answer import BUFFERED, MATCHED
from hipq.job.event_names import JobEvent
from hipq.job.states import FINAL, SCHEDULED
from hipq.job.units import Number


class Check(NamedTuple):
    about: str
    text: str
    holds: bool


class DemoFacts(NamedTuple):
    """Everything that was counted, by whom."""

    jobs: Mapping[str, Sequence[Job[Any]]]
    """The jobs in the database, by queue."""
    added: int
    """The number of jobs that the shop itself added."""
    events: Counter[str]
    """hipq's events."""
    tomorrow: int
    cancelled: int
    rush: frozenset[int]
    first: frozenset[int]
    opens: datetime
    held: Mapping[str, Number]
    """The most units of the limits of payments that were in use at a time."""
    left: int
    """Units that are still in use."""
    passed: int
    bank: Mapping[str, Any]
    """The bank's ledger."""
    words: Mapping[str, int]
    """hipq's outcomes of answers."""
    inbox: Mapping[str, int]
    """Answers in the inbox by state, each as often as it arrived."""

    @property
    def every(self) -> list[Job[Any]]:
        return [job for jobs in self.jobs.values() for job in jobs]

    def of_type(self, job_type: str) -> list[Job[Any]]:
        return [job for job in self.every if job.type == job_type]


def gathered(shop: Shop, story: Story, tally: Tally, reception: Reception) -> DemoFacts:
    app = shop.app
    return DemoFacts(
        jobs={queue.name: app.jobs(queue.name, limit=10_000) for queue in app.queues},
        added=len(story.added),
        events=tally.events,
        tomorrow=story.tomorrow,
        cancelled=story.cancelled,
        rush=frozenset(story.rush),
        first=frozenset(story.first),
        opens=shop.opens,
        held=tally.most(shop.payments.name),
        left=sum(sum(app.store.limits(queue.number).held.values()) for queue in app.queues),
        passed=tally.passed,
        bank=story.ledger,
        words=reception.words,
        inbox={state: count.copies for state, count in app.answers.counts().items()},
    )


def checked(facts: DemoFacts) -> list[Check]:
    return [check for part in _PARTS for check in part(facts)]


# -- jobs ------------------------------------------------------------------------------------------------------------
def _jobs(facts: DemoFacts) -> Iterator[Check]:
    every, receipts, paid = facts.every, facts.of_type("receipt"), _ended(facts.of_type("charge"), "ok")
    codes = Counter(job.code for job in every if job.state == FINAL)
    live = [job for job in every if job.state != FINAL]
    ends = {code: codes[code] for code in ("ok", "failed", "error")}
    yield Check(
        "jobs",
        f"{len(every)} in the database = {facts.added} added by the shop + {len(receipts)} by other jobs",
        len(every) == facts.added + len(receipts) == facts.events[JobEvent.ADDED] == len({job.id for job in every}),
    )
    yield Check(
        "jobs",
        f"{len(every)} = {_sum(ends)} + {len(live)} for tomorrow",
        len(every) == sum(ends.values()) + len(live)
        and [(job.id, job.phase, job.attempt) for job in live] == [(facts.tomorrow, SCHEDULED, 0)],
    )
    yield from _orders(facts)
    yield Check(
        "receipts",
        f"{len(receipts)} for {len(paid)} orders that were paid, each its own",
        sorted(job.key for job in receipts) == sorted(job.key for job in paid) and _ended(receipts, "ok") == receipts,
    )


def _orders(facts: DemoFacts) -> Iterator[Check]:
    charges = facts.of_type("charge")
    ends = Counter(job.code for job in charges)
    parts = {"paid": ends["ok"], "declined": ends["failed"], "given up": ends["error"]}
    yield Check(
        "orders",
        f"{len(charges)} = {_sum(parts)}",
        sum(parts.values()) == len(charges) == ORDERS
        and sorted(job.data["number"] for job in charges) == list(range(ORDERS))
        and all(job.result == {"status": "paid"} for job in _ended(charges, "ok")),
    )


def _single(facts: DemoFacts) -> Iterator[Check]:
    ends = {
        job_type: [(job.code, job.exitcode, job.attempt, job.failures) for job in facts.of_type(job_type)]
        for job_type in ("audit", "newsletter", "reconcile")
    }
    yield Check("failed", "the audit, for good, at its first attempt", ends["audit"] == [("failed", 400, 1, 0)])
    yield Check("cancelled", "the newsletter, before it started", ends["newsletter"] == [("failed", 499, 0, 0)])
    yield Check(
        "crashed",
        "the job that killed its process ran again, apart, and succeeded",
        ends["reconcile"] == [("ok", 200, 2, 1)] and facts.events[JobEvent.CRASHED] == 1,
    )


# -- the bank --------------------------------------------------------------------------------------------------------
def _requests(facts: DemoFacts) -> Iterator[Check]:
    bank, attempts = facts.bank, sum(job.attempt for job in facts.of_type("charge"))
    parts = {"answered": bank["answered"], "never answered": bank["never"], "refused": bank["refused"]}
    yield Check(
        "requests",
        f"{bank['requests']} came to the bank = {attempts} attempts of {len(facts.of_type('charge'))} charges",
        bank["requests"] == attempts,
    )
    yield Check("requests", f"{bank['requests']} = {_sum(parts)}", bank["requests"] == sum(parts.values()))


def _answers(facts: DemoFacts) -> Iterator[Check]:
    bank, words = facts.bank, {word: facts.words.get(word, 0) for word in WORDS}
    said = {"early" if word == BUFFERED else word: count for word, count in words.items()}
    kept, unused = sum(facts.inbox.values()), facts.inbox.get(BUFFERED, 0) + facts.inbox.get(MATCHED, 0)
    yield Check(
        "answers",
        f"{bank['sent']} sent by the bank = {bank['answered']} + {bank['copies']} second ones",
        bank["sent"] == bank["answered"] + bank["copies"],
    )
    yield Check(
        "answers",
        f"{bank['sent']} = {_sum(said)}",
        bank["sent"] == sum(words.values()) and bank["words"] == facts.words,
    )
    yield Check("answers", f"{kept} are in hipq's inbox, {unused} of them unused", (kept, unused) == (bank["sent"], 0))


def _limits(facts: DemoFacts) -> Iterator[Check]:
    def within(most: Mapping[str, Number]) -> bool:
        return all(0 < most.get(name, 0) <= cap for name, cap in CAPS.items())

    seen = facts.bank["most"]
    yield Check(
        "limit",
        f"{CAPS['all']} at a time; the bank saw at most {seen.get('all')}, hipq held at most {facts.held.get('all')}",
        within(seen) and within(facts.held) and not facts.left,
    )
    parts = ", ".join(f"{name} {seen.get(name)} of {CAPS[name]}" for name in SHARES)
    yield Check("limit", f"regions: {parts}", within(seen))


# -- when ------------------------------------------------------------------------------------------------------------
def _starts(jobs: Iterable[Job[Any]]) -> list[tuple[datetime, Job[Any]]]:
    """The first start of each job, without those that never started."""
    found = [
        (next((entry["at"] for entry in job.history if entry["event"] == JobEvent.CLAIMED), None), job) for job in jobs
    ]
    return [(at, job) for at, job in found if at is not None]


def _window(facts: DemoFacts) -> Iterator[Check]:
    reports = [job for job in facts.of_type("report") if job.id != facts.tomorrow]
    starts = [at for at, _ in _starts(reports)]
    after = (min(starts) - facts.opens).total_seconds() if starts else -1.0
    yield Check(
        "window",
        f"opened at {facts.opens:%H:%M:%S}; {len(starts)} reports, the first {after * 1000:.0f} ms later",
        len(starts) == len(reports) == len(_ended(reports, "ok")) and after >= 0,
    )


def _order(facts: DemoFacts) -> Iterator[Check]:
    charges = facts.of_type("charge")
    rush = _starts(job for job in charges if job.id in facts.rush)
    others = _starts(job for job in charges if job.id in facts.first)
    holds = (len(rush), len(others)) == (len(facts.rush), len(facts.first)) and all(
        max(at for at, job in rush if job.lane == lane) <= min(at for at, job in others if job.lane == lane)
        for lane in SHARES
    )
    waits = [
        median((at - job.create_time).total_seconds() for at, job in some) if some else 0.0 for some in (rush, others)
    ]
    yield Check("priority", f"rush orders waited {waits[0]:.1f} s, others added with them {waits[1]:.1f} s", holds)
    freezes = facts.of_type("freeze")
    ran = len(_ended(freezes, "ok"))
    yield Check(
        "critical",
        f"{ran} of {len(freezes)} ran, {facts.passed} of them started while the limit was used up",
        ran == len(freezes) > 0,
    )


_PARTS = (_jobs, _requests, _answers, _limits, _order, _window, _single)


# -- words -----------------------------------------------------------------------------------------------------------
def _ended(jobs: Sequence[Job[Any]], code: str) -> list[Job[Any]]:
    return [job for job in jobs if job.state == FINAL and job.code == code]


def _sum(parts: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {name}" for name, count in parts.items())
